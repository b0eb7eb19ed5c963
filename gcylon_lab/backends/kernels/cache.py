"""Compiled kernels on disk: a folder of this user's alone, in which each entry appears whole and is checked when read.

An entry is a folder named by a digest of all that its code depends on. It is made under another name and renamed, so
that of two processes that make the same the first one's stays. Each of its files has a digest in `entry.json`; where
one differs, or a file is there that is not listed, or another user could have written it, nothing of it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config import KERNEL_CACHE_VARIABLE
from ...errors import ConfigError
from ...units import format_bytes
from ...whole_files import create_exclusively, write_whole

_FORM = 1  # of entries
_ENTRY = "entry.json"
_HITS = "hits"  # as long as it was loaded often
_DRAFT = ".draft-"
_ROOT, _UNMAPPED = 0, 65534  # in a container, the owner of what is not its own is "nobody"
_ABANDONED_S = 24 * 3600
_OFF = ("0", "no", "off", "false")


@dataclass(frozen=True, slots=True)
class CacheState:
    """What is known of the cache.

    Attributes
    ----------
    folder : Path or None
        None where it is off.
    why_not : str
        Why it is not used, in words; "" where it is.
    entries, nbytes, hits : int
        How many kernels it has, their size on disk, and how often they were loaded.
    """

    folder: Path | None
    why_not: str = ""
    entries: int = 0
    nbytes: int = 0
    hits: int = 0

    def describe(self) -> str:
        """In one line of words."""
        if self.why_not:
            return f"compiled kernels are not kept: {self.why_not}"
        held = (
            f"{self.entries} kernel{'s' * (self.entries != 1)}, {format_bytes(self.nbytes)}, loaded {self.hits} times"
        )
        return f"{self.folder}: {held}"


def cache_folder() -> Path | None:
    """Where compiled kernels are kept, by the environment; None where that is off."""
    given = os.environ.get(KERNEL_CACHE_VARIABLE, "").strip()
    if given.lower() in _OFF:
        return None
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "gcylon_lab" / "kernels"


def opened() -> tuple[Path | None, str]:
    """The folder, made where it is missing, or None and why it is not used."""
    folder = cache_folder()
    if folder is None:
        return None, f"{KERNEL_CACHE_VARIABLE} turns it off"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        why_not = refused(folder)
    except OSError as error:
        why_not = f"{folder} cannot be made or read: {error.strerror}"
    return (None, why_not) if why_not else (folder, "")


def refused(folder: Path) -> str:
    """Why what lies in a folder is not believed: another user could have written it. "" where it is."""
    mine = os.geteuid()
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is a link or no folder"
    if status.st_uid != mine or status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        return f"{folder} belongs to user {status.st_uid} with mode {mode:04o}: others than user {mine} can change it"
    # Whoever owns a folder above can put another into its place; where the sticky bit is set others can only add.
    for above in dict.fromkeys((*folder.parents, *folder.resolve().parents)):
        status = os.lstat(above)
        is_link, sticky = stat.S_ISLNK(status.st_mode), status.st_mode & stat.S_ISVTX
        if status.st_uid not in (mine, _ROOT, _UNMAPPED) or status.st_mode & 0o002 and not is_link and not sticky:
            return f"{above} above it can be changed by others than user {mine}"
    return ""


def key_of(parts: Any) -> str:
    """The name of an entry: a digest of what its code depends on, as JSON values."""
    text = json.dumps([_FORM, parts], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def load(folder: Path, key: str) -> tuple[Path, dict[str, Any]] | None:
    """An entry whose files are as they were made: where it is, and what was kept with it. Another one is removed."""
    home = folder / key
    try:
        if refused(home):
            return None
        listed = json.loads((home / _ENTRY).read_text())
        whole = listed["key"] == key and listed["files"] == _digests(home)
        about: dict[str, Any] = dict(listed["about"])
    except FileNotFoundError:
        if not os.path.lexists(home):
            return None
        whole = False
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    if whole:
        with suppress(OSError):
            file = os.open(home / _HITS, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            os.write(file, b".")
            os.close(file)
        return home, about
    shutil.rmtree(home, ignore_errors=True)
    return None


def _digests(home: Path) -> dict[str, str]:
    """The digest of each file of an entry; a link is no file of ours."""
    found = {}
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode) or name in (_ENTRY, _HITS):
            continue
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise ValueError(f"{path} is no file of this user")
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def draft(folder: Path) -> Path:
    """A folder for an entry that is being made; those that a killed process left are removed."""
    for old in folder.glob(f"{_DRAFT}*"):
        with suppress(OSError):
            if time.time() - os.lstat(old).st_mtime > _ABANDONED_S:
                drop(old)
    home = folder / f"{_DRAFT}{os.getpid()}-{secrets.token_hex(8)}"
    home.mkdir(mode=0o700)
    return home


def write_source(home: Path, name: str, text: str) -> Path:
    """Write a source file of an entry, mode 0600."""
    path = home / name
    with os.fdopen(create_exclusively(path, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def keep(home: Path, folder: Path, key: str, about: dict[str, Any]) -> bool:
    """Let a draft be the entry of a key; whether it is now, or another process was first."""
    for path in home.rglob("*"):
        os.chmod(path, 0o700 if path.is_dir() else 0o600)
    write_whole(home / _ENTRY, json.dumps({"key": key, "files": _digests(home), "about": about}))
    try:
        os.rename(home, folder / key)
    except OSError:
        shutil.rmtree(home, ignore_errors=True)
        return False
    return True


def drop(home: Path) -> None:
    """Remove a draft, or an entry."""
    shutil.rmtree(home, ignore_errors=True)


def state() -> CacheState:
    """Look at the cache; nothing is made or loaded."""
    folder = cache_folder()
    if folder is None:
        return CacheState(None, f"{KERNEL_CACHE_VARIABLE} turns it off")
    if not os.path.lexists(folder):
        return CacheState(folder)
    try:
        if why_not := refused(folder):
            return CacheState(folder, why_not)
        return CacheState(folder, "", *_counted(folder))
    except OSError as error:
        return CacheState(folder, f"{folder} cannot be read: {error.strerror}")


def _counted(folder: Path) -> tuple[int, int, int]:
    entries = nbytes = hits = 0
    for home in _entries(folder):
        entries += not home.name.startswith(_DRAFT)
        for path in home.rglob("*"):
            with suppress(OSError):  # another process may remove it
                size = os.lstat(path).st_size if path.is_file() else 0
                nbytes += size if path.name != _HITS else 0
                hits += size if path.name == _HITS else 0
    return entries, nbytes, hits


def clear() -> int:
    """Remove all entries; returns how many there were. Compiled kernels in memory stay.

    Raises
    ------
    ConfigError
        If the folder is one that another user can change.
    """
    folder = cache_folder()
    if folder is None or not os.path.lexists(folder):
        return 0
    if why_not := refused(folder):
        raise ConfigError(f"The cache is not cleared: {why_not}.", advice="Remove it yourself.")
    homes = list(_entries(folder))
    for home in homes:
        drop(home)
    return len(homes)


def _entries(folder: Path) -> Iterator[Path]:
    """Folders in it that are named as ours are: what else lies there stays."""
    named: Callable[[str], bool] = lambda name: len(name) == 40 and set(name) <= set("0123456789abcdef")  # noqa: E731
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and (named(path.name) or path.name.startswith(_DRAFT)):
            yield path

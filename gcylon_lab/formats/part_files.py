"""A folder with one file a rank: hidden until all ranks have written, whole when it can be seen."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ..errors import GcylonError, WriteError, raised_as
from ..whole_files import create_exclusively
from .filesystems import Storage, is_url
from .read_plans import files_in


class PartFiles:
    """The files that one rank writes of a table.

    Parameters
    ----------
    folder : str
        Of `plain_path`.
    rank, size : int
    ending : str
        Of their names, such as ``.parquet``.
    suffixes : tuple of str
        Endings of files that a reader of the folder would take for files of the table.
    storage : Storage

    Notes
    -----
    First all ranks `look`, and agree; then each writes into `create`\\ d files; then all agree again, and `finish`.
    Until then nothing that stands there has changed, and what was written is hidden from readers. They agree once more
    that all have finished, and `settle`; where one has not, all `discard`.
    """

    def __init__(
        self, folder: str, rank: int, size: int, ending: str, suffixes: tuple[str, ...], storage: Storage
    ) -> None:
        self.folder = folder
        self.storage = storage
        self._rank = rank
        self._size = size
        self._ending = ending
        self._suffixes = suffixes
        self._tag = secrets.token_hex(8)  # of hidden names, which nobody can foretell
        self._written: dict[str, str] = {}  # hidden name of each file by the name it will have
        self._old: list[str] = []
        self._named: dict[str, str] = {}  # hidden name by the name that a file was given
        self._aside: dict[str, str] = {}  # name of each file of before by the hidden one it has now
        self.new_folders = 0  # how many of the table's folder and those it is in were made for it, on whatever rank

    def target(self, inside: str = "") -> str:
        """The file of this rank in a folder below the table's."""
        return "/".join([self.folder, *([inside] if inside else []), f"part-{self._rank:05d}{self._ending}"])

    def look(self, *, overwrite: bool) -> None:
        """Make the folder, or refuse it; changes nothing that stands there.

        Raises
        ------
        WriteError
            If files of the same format stand there and ``overwrite`` is False, if there are any that are not parts of
            a table written before, or if it cannot be made.
        """
        with _told(self.folder, "cannot be a folder to write to"):
            if self.storage.is_file(self.folder):
                raise WriteError(f"{self.folder} cannot be a folder to write to: it is a file", path=self.folder)
            self._require_own_link()
            self.new_folders = self._missing()
            self.storage.make_folder(self.folder)
            there = files_in(self.folder, self._suffixes, self.storage)
        names = [path[len(self.folder) :].strip("/") for path in there]
        foreign = [name for name in names if self._number(name) is None]
        if foreign or (names and not overwrite):
            found = foreign or names
            raise WriteError(
                f"the folder {self.folder} already holds {len(found)} {self._suffixes[0][1:]} "
                f"file{'s' if len(found) > 1 else ''}, for example {found[0]}",
                advice="Choose another folder." if foreign else "Choose another folder, or pass overwrite=True.",
                path=self.folder,
            )
        numbers = [self._number(name) for name in names]
        mine = (n == self._rank or (self._rank == 0 and (n or 0) >= self._size) for n in numbers)
        self._old = [path for path, is_mine in zip(there, mine, strict=True) if is_mine]

    def _require_own_link(self) -> None:
        """Refuse a link of another user in the folder's place: files where it leads could be replaced."""
        path = self.folder.rstrip("/")
        owner = os.lstat(path).st_uid if not is_url(path) and os.path.islink(path) else None
        if owner is not None and hasattr(os, "geteuid") and owner not in (os.geteuid(), 0):
            raise WriteError(
                f"{path} is a symbolic link of user {owner}, which is not followed",
                advice="Choose another folder.",
                path=path,
            )

    def _missing(self) -> int:
        """How many folders are not there yet, from the table's own up."""
        folder, count = os.path.abspath(self.folder), 0
        while not is_url(self.folder) and not os.path.lexists(folder):
            folder, count = os.path.dirname(folder), count + 1
        return count

    def _number(self, name: str) -> int | None:
        """Whose part a file is; None where it is none."""
        *folders, last = name.split("/")
        part = re.fullmatch(r"part-(\d{5,})(\.\w+)+", last)
        return int(part[1]) if part and all("=" in folder for folder in folders) else None

    def create(self, inside: str = "") -> Any:
        """Open a new file for writing, in a folder below the table's; the caller closes it."""
        return self.storage.create(self._new(inside))

    def create_descriptor(self) -> int:
        """As `create`, of a folder that is no URL: the descriptor of the new file."""
        return create_exclusively(self._new(), 0o666)

    def _new(self, inside: str = "") -> str:
        target = self.target(inside)
        folder = target.rpartition("/")[0]
        hidden = f"{folder}/.part-{self._rank:05d}.{self._tag}.unfinished"
        if inside:
            self._require_no_link(inside)
            self.storage.make_folder(folder)
        self._written[target] = hidden
        return hidden

    def _require_no_link(self, inside: str) -> None:
        """Refuse folders of values that another user may have led elsewhere; the table's own may be a link."""
        folder = self.folder
        for name in inside.strip("/").split("/") if not is_url(folder) else ():
            folder = f"{folder}/{name}"
            if os.path.islink(folder):
                raise WriteError(
                    f"{folder} is a symbolic link, which is not followed",
                    advice="Remove it, or choose another folder.",
                    path=folder,
                )

    def finish(self) -> list[str]:
        """Give all files their names, in place of those of a table before; returns them.

        What stood there is kept, hidden, until `settle`: `discard` brings it back.

        Raises
        ------
        WriteError
            If that cannot be done.
        """
        with _told(self.folder, "cannot be cleared of files of before"):
            for path in self._old:
                folder, _, name = path.rpartition("/")
                self._move(path, f"{folder}/.{name}.{self._tag}.before", self._aside)
        for target, hidden in self._written.items():
            with _told(target, "cannot be written"):
                self._move(hidden, target, self._named)
        return list(self._written)

    def _move(self, path: str, target: str, moved: dict[str, str]) -> None:
        self.storage.rename(path, target)
        moved[target] = path

    def settle(self) -> None:
        """Remove what stood there before, once all ranks have finished; what cannot be removed stays hidden.

        Nothing is left to `discard` then.
        """
        for hidden in self._aside:
            with suppress(OSError):
                self.storage.remove(hidden)
        self._forget()

    def discard(self) -> None:
        """Remove what was written, under whatever name, and bring back what stood there, as far as that can be done.

        Folders that were made for it go too, where nothing else is in them by now.
        """
        for target in self._named:
            with suppress(OSError):
                self.storage.remove(target)
        for hidden, path in self._aside.items():
            with suppress(OSError):
                self.storage.rename(hidden, path)
        for target, hidden in self._written.items():
            with suppress(OSError):
                self.storage.remove(hidden)
            folder = target.rpartition("/")[0]
            while folder != self.folder and not is_url(folder):
                with suppress(OSError):
                    os.rmdir(folder)  # only where it is empty
                folder = folder.rpartition("/")[0]
        folder = os.path.abspath(self.folder)
        for _ in range(self.new_folders):
            with suppress(OSError):
                os.rmdir(folder)  # the last of the ranks finds it empty
            folder = os.path.dirname(folder)
        self._forget()

    def _forget(self) -> None:
        for known in (self._named, self._aside, self._written):
            known.clear()
        self.new_folders = 0


def _told(path: str, what: str) -> raised_as:
    """Errors of files, and of what Arrow makes of them, as a `WriteError` with the path."""

    def other(error: Exception) -> Exception | None:
        if isinstance(error, GcylonError) or not isinstance(error, (OSError, pa.ArrowException)):
            return None
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        full = "No space left" in str(reason)
        advice = "Make room, or choose a place with more; what stood there is as it was." if full else ""
        return WriteError(f"{path} {what}: {reason}", advice=advice, path=path)

    return raised_as(other)


def writing_to(path: str) -> Any:
    """A context in which errors of files are told with the file that was to be written."""
    return _told(path, "cannot be written")

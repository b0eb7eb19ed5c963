"""Files by path or URL: local ones as they are, all others by way of fsspec, which is loaded only for them. What goes
wrong in reading one is an error that names it.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from glob import glob, has_magic
from typing import Any, BinaryIO, cast

import pyarrow as pa

from ..errors import ArgumentError, DuplicateColumns, GcylonError, ReadError, UnsupportedDtype, raised_as
from ..whole_files import create_exclusively

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
NO_UTF8 = "It has to be written in UTF-8: convert it before, such as with iconv."
_LOCAL = re.compile(r"(file|local)://")
WHOLE_FIRST = "If it gives no parts of a file, put simplecache:: before the URL: each rank then fetches it whole first."


def is_url(path: str) -> bool:
    """Whether a path is a URL, local ones among them."""
    return _URL.match(path) is not None


def plain_path(path: str | os.PathLike[str]) -> str:
    """A path as text, ``~`` and ``file://`` resolved; other URLs as they are, less a slash at the end."""
    text = os.fspath(path)
    text = _LOCAL.sub("", text, count=1)
    return text.rstrip("/") if is_url(text) else os.path.expanduser(text)


class Storage:
    """How files are reached.

    Parameters
    ----------
    options : mapping, optional
        For fsspec's filesystem, such as a key; of no meaning to local files.

    Notes
    -----
    Paths are those of `plain_path`. What a library raises for a URL arrives as an OSError. ``limit_bytes`` is the
    budget of whoever reads or writes, where there is one; ``copies`` says whether what is read takes memory of its own.
    """

    copies = True

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})
        self.limit_bytes: int | None = None

    def __repr__(self) -> str:  # plans and records are shown: never the values, which may be secret
        return f"Storage({sorted(self.options)})"

    # ---- looking

    def is_file(self, path: str) -> bool:
        """Whether there is a file of this name."""
        if not is_url(path):
            return os.path.isfile(path)
        with _as_os_error(path):
            files, inner = self._remote(path)
            return bool(files.isfile(inner))

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        if not is_url(path):
            return os.path.isdir(path)
        with _as_os_error(path):
            files, inner = self._remote(path)
            return bool(files.isdir(inner))

    def size(self, path: str) -> int:
        """Bytes of a file.

        Raises
        ------
        OSError
            If it is not there, or does not say.
        """
        if not is_url(path):
            return os.path.getsize(path)
        with _as_os_error(path):
            files, inner = self._remote(path)
            size = files.size(inner)
        if size is None:
            raise OSError(f"its server does not say how large it is. {WHOLE_FIRST}")
        return int(size)

    def below(self, folder: str) -> list[str]:
        """All files in a folder and in those below, in the order of their names; none where it is not there."""
        if not is_url(folder):
            return sorted(os.path.join(base, name) for base, _, names in os.walk(folder) for name in names)
        with _as_os_error(folder):
            files, inner = self._remote(folder)
            files.invalidate_cache()  # other ranks write there too
            return sorted(_urls(folder, inner, files.find(inner)))

    def matches(self, pattern: str) -> list[str]:
        """Files and folders that a pattern names, in the order of their names."""
        if not is_url(pattern):
            return sorted(glob(pattern, recursive=True))
        with _as_os_error(pattern):
            files, inner = self._remote(pattern)
            return sorted(_urls(pattern, inner, files.glob(inner)))

    # ---- opening

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading.

        Raises
        ------
        OSError
            If that cannot be.
        """
        if not is_url(path):
            return open(path, "rb")
        with _as_os_error(path):
            files, inner = self._remote(path)
            file = files.open(inner, "rb")
            if isinstance(file, io.BytesIO):  # memory:// gives all who open a file one object, with one position
                return io.BytesIO(file.getvalue())
            return cast(BinaryIO, _Remote(file, path))

    def arrow_file(self, path: str) -> Any:
        """As `open`, as a file of Arrow's. None is mapped: where a mapped file is cut, who looks at it is killed."""
        return pa.PythonFile(self.open(path), "r") if is_url(path) else pa.OSFile(path)

    def create(self, path: str) -> Any:
        """Open a new file for writing, in a folder that is there; what stands there already is an error."""
        if not is_url(path):
            descriptor = create_exclusively(path, 0o666)
            try:
                return pa.OSFile(f"/proc/self/fd/{descriptor}", "wb")  # Arrow's own file, of just the one made
            finally:
                os.close(descriptor)
        with _as_os_error(path):
            files, inner = self._remote(path)
            return files.open(inner, "wb")

    # ---- changing

    def make_folder(self, path: str) -> None:
        """Make a folder, and those that it is in; where names are all that makes folders, nothing."""
        if not is_url(path):
            os.makedirs(path, exist_ok=True)
            return
        with _as_os_error(path):
            files, inner = self._remote(path)
            files.makedirs(inner, exist_ok=True)

    def rename(self, path: str, target: str) -> None:
        """Give a file another name, in place of what has that."""
        if not is_url(path):
            os.replace(path, target)
            return
        with _as_os_error(target):
            files, inner = self._remote(path)
            files.mv(inner, self._remote(target)[1])

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            if not is_url(path):
                os.remove(path)
                return
            with _as_os_error(path):
                files, inner = self._remote(path)
                files.rm_file(inner)

    def _remote(self, url: str) -> tuple[Any, str]:
        """fsspec's filesystem for a URL, and what the URL is called there."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ArgumentError(
                f"{url} is a URL, and fsspec, which reaches it, is not installed.",
                advice="Install gcylon-lab[remote] where the engines run, and what its protocol needs, such as s3fs.",
            ) from None
        try:
            found: tuple[Any, str] = url_to_fs(url, **self.options)
        except ImportError as error:
            raise ArgumentError(
                f"{url} cannot be reached: {error}.", advice="Install it where the engines run."
            ) from None
        except (ValueError, TypeError) as error:
            raise ArgumentError(
                f"{url} cannot be reached: {error}.", advice="Look at its protocol, and at storage_options=."
            ) from None
        return found


def _urls(url: str, inner: str, names: list[str]) -> list[str]:
    """What a filesystem calls its files, as URLs like the one that led to them."""
    if not url.endswith(inner):
        inner = inner.lstrip("/")
    prefix = url[: len(url) - len(inner)] if url.endswith(inner) else url[: url.index("://") + 3]
    slash = inner.startswith("/")
    return [prefix + (name if slash == name.startswith("/") else name.lstrip("/")) for name in names]


def _as_os_error(path: str) -> raised_as:
    """Filesystems of fsspec raise what their libraries raise."""

    def other(error: Exception) -> Exception | None:
        return None if isinstance(error, (OSError, GcylonError)) else _caused(OSError(_told(error)), error)

    return raised_as(other)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _caused(made: Exception, error: Exception) -> Exception:
    made.__cause__ = error
    return made


class _Remote(io.RawIOBase):
    """A remote file whose errors are OSErrors."""

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self._path = path

    def _do(self, work: Callable[[], Any]) -> Any:
        try:
            with _as_os_error(self._path):
                return work()
        except OSError as error:
            if "range requests" in str(error):
                raise OSError(f"its server gives no parts of a file. {WHOLE_FIRST}") from error
            raise

    def read(self, size: int | None = -1, /) -> bytes:
        """At most so many bytes."""
        data: bytes = self._do(lambda: self._file.read(-1 if size is None else size))
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a place."""
        return int(self._do(lambda: self._file.seek(offset, whence)))

    def tell(self) -> int:
        """Where it is."""
        return int(self._file.tell())

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """As far as its library says."""
        return bool(self._file.seekable())

    def close(self) -> None:
        """Close it."""
        if not self.closed:
            super().close()
            self._file.close()


def fixed_part(pattern: str) -> str:
    """The folder of a pattern in which nothing is left open."""
    kept = []
    for segment in pattern.split("/"):
        if has_magic(segment):
            break
        kept.append(segment)
    return "/".join(kept)


def unreadable(path: str, error: BaseException | str, advice: str = "", *, line: int | None = None) -> ReadError:
    """The error for a file that cannot be read, with the line where that is known."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, UnicodeError):
        advice = NO_UTF8
    where = "" if line is None else f" at line {line}"
    numbers = {} if line is None else {"line": line}
    return ReadError(f"{path} cannot be read{where}: {reason}", advice=advice, path=path, **numbers)


def reading(path: str, advice: str = "") -> raised_as:
    """Raise what goes wrong while a file is read as a `ReadError` that names it; our own errors as they are."""

    def other(error: Exception) -> Exception | None:
        if isinstance(error, GcylonError):
            if isinstance(error, (DuplicateColumns, UnsupportedDtype)) and path not in error.message:
                error.message = f"{path}: {error.message}"
            return None
        if isinstance(error, (OSError, pa.ArrowException, UnicodeError)):
            return unreadable(path, error, advice)
        return _caused(unreadable(path, _told(error), advice), error)

    return raised_as(other)

"""A file that stands in memory, as bytes, for readers that ask for files by path."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pyarrow as pa

from ..errors import ArgumentError
from .filesystems import Storage


class InMemory(Storage):
    """One file alone, which is bytes.

    Parameters
    ----------
    data : pyarrow.Buffer
    """

    copies = False

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._data = data
        self.path = f"<{data.size} bytes>"

    def __repr__(self) -> str:  # by which ranks find out whether theirs are the same
        return f"InMemory({hashlib.blake2b(self._data, digest_size=8).hexdigest()})"

    def is_file(self, path: str) -> bool:
        """Whether it is this one."""
        return path == self.path

    def size(self, path: str) -> int:
        """How many bytes."""
        return int(self._data.size)

    def arrow_file(self, path: str) -> Any:
        """The bytes themselves, which are not copied."""
        return pa.BufferReader(self._data)


def in_memory(given: Any, storage_options: Any = None) -> InMemory | None:
    """What stands for bytes that a reader was given; None for paths.

    Parameters
    ----------
    given : path or paths, bytes or any buffer, or io.BytesIO

    Raises
    ------
    ArgumentError
        If it cannot be read as bytes, or there are options for a filesystem too.
    """
    if isinstance(given, io.BytesIO):
        given = given.getbuffer()
    elif hasattr(given, "read"):
        raise ArgumentError(
            f"Expected paths or bytes, got an open {type(given).__qualname__}.", advice="Give its path, or file.read()."
        )
    if not isinstance(given, (bytes, bytearray, memoryview, pa.Buffer)):
        return None
    if storage_options is not None:
        raise ArgumentError("storage_options= is for URLs, and bytes were given.", advice="Leave it out.")
    return InMemory(pa.py_buffer(given))

"""Which rank reads what. Pure but for looking at file names and sizes: the same on every rank that sees the same files.

Rank order is file order: the rows of rank 0 come before those of rank 1.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from glob import has_magic

from ..errors import GcylonError, ReadError
from .filesystems import Storage, fixed_part, is_url, plain_path

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# A boundary between ranks moves to the edge of its row group if that moves it by less than this part of a share: a
# group that is cut has to be decoded on both sides.
_SNAP = 0.25


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Rows [start, stop) of one row group of a file."""

    path: str
    group: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class BytePiece:
    """The lines of a file that begin in bytes [start, stop); all of them where ``whole``."""

    path: str
    start: int
    stop: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file, and the folder or fixed part of a pattern that it was found in; "" where it was named itself."""

    path: str
    base: str = ""

    @property
    def folders(self) -> list[str]:
        """The folders below the base that it is in."""
        return self.path[len(self.base) :].strip("/").split("/")[:-1] if self.base else []


def expand_paths(paths: Paths, suffixes: tuple[str, ...], storage: Storage | None = None) -> list[str]:
    """As `find_files`, the paths alone."""
    return [found.path for found in find_files(paths, suffixes, storage)]


def find_files(paths: Paths, suffixes: tuple[str, ...], storage: Storage | None = None) -> list[FoundFile]:
    """Files that paths, folders and patterns stand for, in order; those of a folder or pattern sorted by name.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders (read with their subfolders; hidden names and such as ``_SUCCESS`` left out) or patterns,
        or URLs of such.
    suffixes : tuple of str
        Endings of the files that count in a folder.
    storage : Storage, optional
        How URLs are reached.

    Raises
    ------
    ReadError
        If there is no such file, naming the path.
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    storage = storage or Storage()
    found = [file for path in listed for file in _expand(plain_path(path), suffixes, storage)]
    if not found:
        raise ReadError("no paths were given", advice="Name at least one file, folder or pattern.")
    return found


def _expand(path: str, suffixes: tuple[str, ...], storage: Storage) -> list[FoundFile]:
    where = "Is the URL right, and who may read it?" if is_url(path) else f"The working folder is {os.getcwd()}."
    try:
        if storage.is_file(path):
            return [FoundFile(path)]
        if storage.is_folder(path):
            files = files_in(path, suffixes, storage)
            if not files:
                raise ReadError(f"the folder {path} holds no {' or '.join(suffixes)} file", path=path)
            return [FoundFile(file, path) for file in files]
        if has_magic(path):
            files = [file for match in storage.matches(path) for file in _matched(match, suffixes, storage)]
            if files:
                return [FoundFile(file, fixed_part(path)) for file in files]
            raise ReadError(f"no file matches {path}", advice=where, path=path)
    except OSError as error:
        if isinstance(error, GcylonError):
            raise
        raise ReadError(f"{path} cannot be looked at: {error.strerror or error}", advice=where, path=path) from None
    raise ReadError(f"there is no file {path}", advice=where, path=path)


def _matched(path: str, suffixes: tuple[str, ...], storage: Storage) -> list[str]:
    if path.rsplit("/", 1)[-1].startswith("."):
        return []
    return files_in(path, suffixes, storage) if storage.is_folder(path) else [path]


def files_in(folder: str, suffixes: tuple[str, ...], storage: Storage) -> list[str]:
    """Files of a folder and of those below that count as a table's, in the order of their names."""
    below = ((file, file[len(folder) :].strip("/").split("/")) for file in storage.below(folder))
    return [file for file, names in below if file.endswith(suffixes) and not any(map(_is_hidden, names))]


def _is_hidden(name: str) -> bool:
    return name[:1] == "." or (name[:1] == "_" and "=" not in name)


def spread_rows(groups: Sequence[tuple[str, int, int, int]], size: int) -> list[list[RowPiece]]:
    """Share row groups out evenly by bytes, in order.

    Parameters
    ----------
    groups : sequence of (path, group, rows, bytes)
        The rows of a group are taken to be of one size.
    size : int
        Number of ranks.

    Returns
    -------
    list of list of RowPiece, shape (size,)
    """
    edges = [0]
    for _, _, rows, nbytes in groups:
        edges.append(edges[-1] + (max(1, nbytes) if rows else 0))
    bounds = [_boundary(edges, rank, size) for rank in range(size + 1)]
    return [_between(groups, edges, first, last) for first, last in zip(bounds, bounds[1:], strict=False)]


def _between(groups: Sequence[tuple[str, int, int, int]], edges: list[int], first: int, last: int) -> list[RowPiece]:
    share = []
    place = bisect_right(edges, first) - 1
    while place < len(groups) and edges[place] < last:
        path, group, rows, _ = groups[place]
        start, stop = edges[place], edges[place + 1]
        if stop > start:
            low, high = (rows * (at - start) // (stop - start) for at in (max(first, start), min(last, stop)))
            share += [RowPiece(path, group, low, high)] if low < high else []
        place += 1
    return share


def _boundary(edges: Sequence[int], rank: int, size: int) -> int:
    total = edges[-1]
    exact = total * rank // size
    above = bisect_left(edges, exact)
    nearest = min(edges[max(0, above - 1) : above + 1], key=lambda edge: abs(edge - exact))
    return nearest if abs(nearest - exact) * size <= _SNAP * total else exact


def spread_bytes(files: Sequence[tuple[str, int, bool]], size: int) -> list[list[BytePiece]]:
    """Share files out evenly by bytes, in order.

    Parameters
    ----------
    files : sequence of (path, bytes, whether it may be cut)
    size : int
        Number of ranks.

    Returns
    -------
    list of list of BytePiece, shape (size,)
    """
    total = max(1, sum(count for _, count, _ in files))
    shares: list[list[BytePiece]] = [[] for _ in range(size)]
    at = 0
    for path, count, cuttable in files:
        if cuttable:
            for rank in range(size):
                low, high = (min(max(total * r // size - at, 0), count) for r in (rank, rank + 1))
                if low < high:
                    shares[rank].append(BytePiece(path, low, high))
        else:
            shares[min(size - 1, (2 * at + count) * size // (2 * total))].append(BytePiece(path, 0, count, whole=True))
        at += count
    return shares

"""Which rank reads what. Pure but for looking at file names and sizes: the same on every rank that sees the same files.

Rank order is file order: the rows of rank 0 come before those of rank 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic

from ..errors import ReadError

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


def expand_paths(paths: Paths, suffixes: tuple[str, ...]) -> list[str]:
    """Files that paths, folders and patterns stand for, in order; those of a folder or pattern sorted by name.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders (read with their subfolders; hidden names and such as ``_SUCCESS`` left out) or patterns.
    suffixes : tuple of str
        Endings of the files that count in a folder.

    Raises
    ------
    ReadError
        If there is no such file, naming the path.
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found = [file for path in listed for file in _expand(os.path.expanduser(os.fspath(path)), suffixes)]
    if not found:
        raise ReadError("no paths were given", advice="Name at least one file, folder or pattern.")
    return found


def _expand(path: str, suffixes: tuple[str, ...]) -> list[str]:
    if "://" in path:
        raise ReadError(f"{path} is not a local path", advice="Download or mount it first.", path=path)
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        files = sorted(_walk(path, suffixes))
        if not files:
            raise ReadError(f"the folder {path} holds no {' or '.join(suffixes)} file", path=path)
        return files
    if has_magic(path):
        files = sorted(file for file in glob(path, recursive=True) if os.path.isfile(file))
        if files:
            return files
        raise ReadError(f"no file matches {path}", advice=f"The working folder is {os.getcwd()}.", path=path)
    raise ReadError(f"there is no file {path}", advice=f"The working folder is {os.getcwd()}.", path=path)


def _walk(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    files = []
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "._"]
        files += [os.path.join(base, name) for name in names if name[0] not in "._" and name.endswith(suffixes)]
    return files


def spread_rows(groups: Sequence[tuple[str, int, int]], size: int) -> list[list[RowPiece]]:
    """Share row groups out evenly by rows, in order.

    Parameters
    ----------
    groups : sequence of (path, group, rows)
    size : int
        Number of ranks.

    Returns
    -------
    list of list of RowPiece, shape (size,)
    """
    edges = [0]
    for _, _, rows in groups:
        edges.append(edges[-1] + rows)
    bounds = [_boundary(edges, rank, size) for rank in range(size + 1)]
    shares: list[list[RowPiece]] = []
    for first, last in zip(bounds, bounds[1:], strict=False):
        share = []
        for (path, group, _), start, stop in zip(groups, edges, edges[1:], strict=False):
            low, high = max(first, start), min(last, stop)
            if low < high:
                share.append(RowPiece(path, group, low - start, high - start))
        shares.append(share)
    return shares


def _boundary(edges: Sequence[int], rank: int, size: int) -> int:
    total = edges[-1]
    exact = total * rank // size
    nearest = min(edges, key=lambda edge: abs(edge - exact))
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

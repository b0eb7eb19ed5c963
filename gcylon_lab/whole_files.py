"""Files that appear whole, and that only this user reads unless said otherwise."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def create_exclusively(path: str | Path, mode: int) -> int:
    """Open a new file for writing; a file or a link that stands there, dangling or not, is a FileExistsError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def write_whole(path: str | os.PathLike[str], text: str, mode: int = 0o600) -> None:
    """Write a file so that readers see the old or the new text and nothing between.

    What stands there is replaced: a link as well, never what it leads to, which another user may have chosen.

    Raises
    ------
    OSError
        If it cannot be written; then nothing is left of it.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    descriptor = create_exclusively(draft, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise

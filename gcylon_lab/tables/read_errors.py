"""Errors of files that cannot be read: each names its file, whatever library raised it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from ..errors import GcylonError, ReadError

NO_UTF8 = "It has to be written in UTF-8: convert it before, such as with iconv."


def unreadable(path: str, error: BaseException | str, advice: str = "", *, line: int | None = None) -> ReadError:
    """The error for a file that cannot be read, with the line where that is known."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, UnicodeError):
        advice = NO_UTF8
    where = "" if line is None else f" at line {line}"
    numbers = {} if line is None else {"line": line}
    return ReadError(f"{path} cannot be read{where}: {reason}", advice=advice, path=path, **numbers)


@contextmanager
def reading(path: str, advice: str = "") -> Iterator[None]:
    """Raise what goes wrong while a file is read as a `ReadError` that names it; our own errors as they are."""
    try:
        yield
    except GcylonError:
        raise
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise unreadable(path, error, advice) from None
    except Exception as error:
        raise unreadable(path, f"{type(error).__name__}: {error}", advice) from error

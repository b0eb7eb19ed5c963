"""Where the records of text end: at line ends, for csv at those outside quotes, by the rule of Arrow's reader.

A double quote opens a quoted value only where a value begins: at the start, or after a delimiter or a line end. Inside,
two quotes stand for one, and a single one closes; from there to the next delimiter all is plain, quotes included. So

- runs of an even number of quotes change nothing;
- after a delimiter or a line end, a run of an odd number opens a value, or closes the one that is open;
- after anything else, a run of an odd number ends outside quotes, whatever was before it: it closes a value, or it
  is plain, as in ``10" pipe``.

The last kind tells the state without a look at what is further ahead, so a cut anywhere in a file needs to look back
only to the last such run.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

_QUOTE, _LINE_END, _RETURN = b'"\n\r'
_WINDOW = 1 << 12
_STEP = 1 << 16
# So far back a cut looks for a run that tells where it is. Without any it is taken to be outside quotes, and whoever
# reads up to it finds out.
LOOK_BACK_BYTES = 1 << 20
_LONGEST_LOOK_BYTES = 1 << 26  # where there are runs, and none that tells


def _odd_runs(data: bytes | bytearray, start: int, stop: int, delimiter: bytes, before: int) -> tuple[Int64s, Any]:
    """Where runs of an odd number of quotes begin, and which of them toggle; neither end may cut a run."""
    some = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(some[start:stop] == _QUOTE) + start
    firsts = np.flatnonzero(np.diff(quotes, prepend=-2) != 1)
    odd = np.diff(firsts, append=len(quotes)) % 2 == 1
    begins = quotes[firsts[odd]]
    ahead = some[begins - 1]
    if len(begins) and begins[0] == 0:
        ahead[0] = before
    return begins, (ahead == ord(delimiter)) | (ahead == _LINE_END) | (ahead == _RETURN)


def opening_quote(data: bytes | bytearray, end: int, delimiter: bytes) -> int:
    """Where the quoted value begins that byte ``end`` is in; -1 where it is outside quotes.

    Parameters
    ----------
    data : bytes
        Begins with a record.
    end : int
        Not inside a run of quotes.
    delimiter : bytes
    """
    last, toggled, low, window = -1, 0, end, _WINDOW
    while (high := data.rfind(b'"', 0, low) + 1) > 0:
        low = max(0, high - window)
        while low and data[low - 1] == _QUOTE:
            low -= 1
        runs, toggles = _odd_runs(data, low, high, delimiter, _LINE_END)
        if last < 0 and len(runs):
            last = int(runs[-1])
        sure = np.flatnonzero(~toggles)
        toggled += len(runs) - (int(sure[-1]) + 1 if len(sure) else 0)
        if len(sure):
            break
        window *= 4
    return last if toggled % 2 else -1


def whole_records(data: bytes, limit: int, delimiter: bytes | None) -> int:
    """Bytes of the whole records within a limit; of the first one, where that is longer; 0 where none is whole.

    Parameters
    ----------
    data : bytes
        Begins with a record.
    limit : int
    delimiter : bytes, optional
        Of csv; without it every line end is the end of a record.
    """
    end = data.rfind(b"\n", 0, limit) + 1
    while end and delimiter is not None:
        opened = opening_quote(data, end, delimiter)
        if opened < 0:
            break
        end = data.rfind(b"\n", 0, opened) + 1
    if end or len(data) <= limit:
        return end
    ends, _ = record_ends(data, delimiter)
    return int(ends[0]) if len(ends) else 0


def record_ends(
    data: bytes, delimiter: bytes | None, *, inside: bool = False, before: int = _LINE_END
) -> tuple[Int64s, bool]:
    """Where records end, each with its line end, and whether data ends inside quotes.

    Parameters
    ----------
    data : bytes
        Does not end within a run of quotes, unless it is the end of all.
    delimiter : bytes, optional
        As for `whole_records`.
    inside : bool, default False
        Whether data begins inside quotes.
    before : int
        The byte before data.
    """
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_END) + 1
    if delimiter is None:
        return ends, False
    runs, toggles = _odd_runs(data, 0, len(data), delimiter, before)
    toggled = np.cumsum(toggles)
    since = np.maximum.accumulate(np.where(toggles, -int(inside), toggled))  # the count at the last run that is sure
    states = np.concatenate([[inside], (toggled - since) % 2 == 1])
    return ends[~states[np.searchsorted(runs, ends)]], bool(states[-1])


def record_start(file: BinaryIO, at: int, first: int, delimiter: bytes | None) -> int:
    """Where the first record begins that does so at or after a byte; where none does, the end of the file.

    The same for all who look at the same file, so that what ends here for one begins here for the next.

    Parameters
    ----------
    file : file
        That can be read from any place.
    at : int
    first : int
        Where the first record of all begins.
    delimiter : bytes, optional
        As for `whole_records`.
    """
    if at <= first:
        return first
    place, inside, before = (at - 1, False, 0) if delimiter is None else _state(file, at - 1, first, delimiter)
    file.seek(place)
    rest, step = b"", _STEP
    while part := file.read(step):
        data = rest + part
        whole = len(data.rstrip(b'"'))
        ends, inside = record_ends(data[:whole], delimiter, inside=inside, before=before)
        found = ends[np.searchsorted(ends, at - place) :]
        if len(found):
            return place + int(found[0])
        before = data[whole - 1] if whole else before
        place, rest, step = place + whole, data[whole:], min(2 * step, LOOK_BACK_BYTES)
    return place + len(rest)


def _state(file: BinaryIO, at: int, first: int, delimiter: bytes) -> tuple[int, bool, int]:
    """A place at a byte or before it, not within a run of quotes; whether it is inside quotes; the byte before."""
    data, low, step = b"", at, _STEP
    while True:
        further = max(first, low - step)
        file.seek(further)
        data, low = file.read(low - further) + data, further
        stop = len(data.rstrip(b'"'))
        # What a run at the very start of what was read comes after is not known yet.
        start = 0 if low == first else len(data) - len(data.lstrip(b'"'))
        runs, toggles = _odd_runs(data, min(start, stop), stop, delimiter, _LINE_END)
        sure = np.flatnonzero(~toggles)
        looked = at - low
        enough = looked >= (_LONGEST_LOOK_BYTES if len(runs) else LOOK_BACK_BYTES)
        if len(sure) or low == first or (enough and stop):
            toggled = len(runs) - (int(sure[-1]) + 1 if len(sure) else 0)
            return low + stop, toggled % 2 == 1, data[stop - 1] if stop else _LINE_END
        step *= 4

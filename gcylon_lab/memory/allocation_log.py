"""What was claimed of a budget and given back, when: a line for each, in the columns of RMM's log of allocations."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from time import time

COLUMNS = ("Thread", "Time", "Action", "Pointer", "Size", "Stream", "What")


def log_of_rank(path: str, rank: int) -> str:
    """The file of one rank: each has its own, ``log.rank0.csv`` of ``log.csv``."""
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}.rank{rank}{whole.suffix}"))


class AllocationLog:
    """A file of a rank's claims, written line by line, so that it is whole however the process ends.

    Parameters
    ----------
    path : str
        Made anew.

    Raises
    ------
    OSError
        If it cannot be written.
    """

    def __init__(self, path: str) -> None:
        # One call a line: a claim may be given back by the collector while another one is written down.
        self.path = path
        # A file that another user has put there could be read by them, or be one more name of a file of ours.
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._fd, (",".join(COLUMNS) + "\n").encode())

    def write(self, action: str, nbytes: int, what: str) -> None:
        """Note a claim ("allocate") or that it was given back ("free"); a claim has no address and no stream."""
        if self._fd < 0:
            return
        quoted = what.replace('"', '""')
        line = f'{threading.get_ident()},{time():.6f},{action},0x0,{nbytes},0x0,"{quoted}"\n'
        os.write(self._fd, line.encode())

    def remove(self) -> None:
        """Close the file and take it away."""
        self.close()
        os.unlink(self.path)

    def close(self) -> None:
        """Close the file. Claims of before may be given back later: they are noted nowhere."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

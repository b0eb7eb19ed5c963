"""Contenders of a process for each GPU, which meet over files and talk by rapidsmpf's communicator."""

from __future__ import annotations

import os
import pickle
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Meeting:
    """A folder in which ranks leave things for each other."""

    def __init__(self, folder: str, rank: int, ranks: int) -> None:
        self._folder, self._number = Path(folder), 0
        self.rank, self.ranks = rank, ranks

    def share(self, thing: Any) -> list[Any]:
        """Collective: all ranks call it. Every rank's thing."""
        self._number += 1
        new = self._folder / f"{self._number}.{self.rank}.new"
        new.write_bytes(pickle.dumps(thing))
        new.rename(self._folder / f"{self._number}.{self.rank}")
        found = []
        for rank in range(self.ranks):
            file = self._folder / f"{self._number}.{rank}"
            while not file.exists():
                time.sleep(0.0002)
            found.append(pickle.loads(file.read_bytes()))
        return found

    def connect(self) -> Any:
        """Collective: all ranks call it. A communicator of rapidsmpf of all of them."""
        import ucxx._lib.libucxx as ucx
        from rapidsmpf.communicator.ucxx import barrier, get_root_ucxx_address, new_communicator
        from rapidsmpf.config import Options, get_environment_variables
        from rapidsmpf.progress_thread import ProgressThread
        from rapidsmpf.statistics import Statistics

        options, progress = Options(get_environment_variables()), ProgressThread(Statistics(enable=False))
        comm, address = None, None
        if self.rank == 0:
            comm = new_communicator(self.ranks, None, None, options, progress)
            address = get_root_ucxx_address(comm)
        address = self.share(address)[0]
        if comm is None:
            comm = new_communicator(self.ranks, None, ucx.UCXAddress.create_from_buffer(address), options, progress)
        barrier(comm)
        return comm


def run_one_a_gpu(ranks: int, command: Sequence[str], *after: str) -> int:
    """Run a command once for each GPU, with the rank's number and what comes after it as its last arguments.

    Returns
    -------
    int
        The largest exit status; none of them runs any more.
    """
    processes = [
        subprocess.Popen([*command, str(rank), *after], env=os.environ | {"CUDA_VISIBLE_DEVICES": str(rank)})
        for rank in range(ranks)
    ]
    try:
        return max(process.wait() for process in processes)
    finally:
        for process in processes:
            process.kill()

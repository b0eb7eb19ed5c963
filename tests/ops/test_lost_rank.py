"""A rank's process is killed: every other rank has an error that names it, within seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from worlds import MPI_ENVIRONMENT

PROGRAM = Path(__file__).with_name("lost_rank.py")


@pytest.mark.mpi
def test_a_killed_rank_is_named_on_all_others(tmp_path: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    paths = os.pathsep.join(p for p in sys.path if p)
    subprocess.run(
        [str(mpiexec), "--with-ft", "ulfm", "-n", "4", sys.executable, str(PROGRAM), str(tmp_path)],
        env=os.environ | MPI_ENVIRONMENT | {"PYTHONPATH": paths},
        timeout=100,
        check=False,  # mpiexec's own exit code tells that a rank was killed
        capture_output=True,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "2", "3"]
    for rank in (0, 2, 3):
        seen = json.loads((tmp_path / str(rank)).read_text())
        assert seen["shuffle"]["kind"] == "RankLost", seen
        assert seen["shuffle"]["waited_s"] < 5
        assert seen["shuffle"]["numbers"]["lost_ranks"] == [1]
        assert "process of rank 1 is gone" in seen["shuffle"]["text"]
        assert "Restart" in seen["shuffle"]["text"]
        assert seen["left"]["bytes"] == 0
        # It cannot be used any more, and says so at once.
        assert seen["again"]["kind"] == seen["recover"]["kind"] == "RankLost", seen
        assert seen["again"]["waited_s"] < 1

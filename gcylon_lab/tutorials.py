"""The tutorials: JupyterLab on a copy of them, data that they and the demo use, and what they measure as a table."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from jupyter_core.paths import jupyter_runtime_dir

from .errors import ReadError, WriteError
from .profiling.report import summary
from .whole_files import create_exclusively

if TYPE_CHECKING:
    import pandas as pd

    from .cluster.client.cluster import Cluster

_MIB = 2**20
_COPIED = ("*.ipynb", "*.md", "pictures/*.png")
_INDEX = "index.md"
_LONGEST_RUNTIME = 56  # bytes; Jupyter adds "/kernel-", 36 of a random name, and "-ipc-12"


def tutorials_folder() -> Path:
    """Where the tutorials are: inside an installed wheel, or beside the package in a clone."""
    package = Path(__file__).parent
    inside = package / "_notebooks"
    return inside if inside.is_dir() else package.parent / "notebooks"


def copy_tutorials(folder: str | Path) -> list[Path]:
    """Copy the tutorials and pages to a folder; what stands there already is kept.

    Returns
    -------
    list of Path
        All of them in the folder, in order.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    """
    folder = Path(folder)
    copies = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _require_own(folder, os.stat(folder))
        (folder / "pictures").mkdir(exist_ok=True)
        _require_own(folder / "pictures", os.lstat(folder / "pictures"))
        there = tutorials_folder()
        for notebook in sorted(path for ending in _COPIED for path in there.glob(ending)):
            copies.append(folder / notebook.relative_to(there))
            if os.path.lexists(copies[-1]):
                _require_own(copies[-1], os.lstat(copies[-1]))
            else:
                with os.fdopen(create_exclusively(copies[-1], 0o644), "wb") as copy:
                    copy.write(notebook.read_bytes())
    except WriteError:  # an OSError, too
        raise
    except OSError as error:
        message = f"The tutorials cannot be copied to {folder}: {error.strerror}."
        raise WriteError(message, advice="Set --dir to a folder that can be written.") from error
    return copies


def _require_own(path: Path, status: os.stat_result) -> None:
    """Refuse what another user has put there: notebooks are run."""
    if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0):
        raise WriteError(
            f"{path}, for the tutorials, belongs to user {status.st_uid}: what stands there may be theirs.",
            advice="Set --dir to a folder of your own.",
        )


def private_kernels(runtime: Path) -> list[str]:
    """Arguments for Jupyter's servers, whose kernels then listen on Unix sockets that no other user can open.

    On ports, which is what Jupyter does by itself, any user of the host can listen to what cells print.

    Parameters
    ----------
    runtime : Path
        Jupyter's folder for them. Where its name is too long for theirs to have 107 bytes they stay on ports.
    """
    return ["--KernelManager.transport=ipc"] if len(os.fsencode(runtime)) <= _LONGEST_RUNTIME else []


def open_lab(folder: str, arguments: Sequence[str] = ()) -> NoReturn:
    """Become JupyterLab: this process is it from now on.

    Parameters
    ----------
    folder : str
        For the copy of the tutorials, and the folder that JupyterLab shows.
    arguments : sequence of str
        For ``jupyter lab``.
    """
    copy_tutorials(folder)
    # Pages are shown as pages, not as their source, unless the user's own settings say otherwise.
    beside = str(Path(__file__).parent / "ui" / "jupyterlab")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [os.environ.get("JUPYTER_CONFIG_PATH"), beside]))
    command = [sys.executable, "-P", "-m", "jupyterlab", f"--notebook-dir={Path(folder).resolve()}"]
    if not any("KernelManager.transport" in argument for argument in arguments):
        command += private_kernels(Path(jupyter_runtime_dir()))
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
        print("You are root, so JupyterLab gets --allow-root: whoever has its address with the token is root here.")
    command.append(f"--LabApp.default_url=/lab/tree/{_INDEX}")
    sys.stdout.flush()
    os.execv(command[0], [*command, *arguments])


def make_tpch(folder: str | Path, scale: float, tables: Sequence[str] = ("lineitem", "orders")) -> list[Path]:
    """Make a parquet file of each of some tables of TPC-H in a folder, with row groups of about 4 MB.

    Parameters
    ----------
    folder : str or Path
        Made where it is missing; files that stand there are replaced.
    scale : float
        TPC-H scale factor; 1 is 6 million rows of lineitem, about 1.1 GiB in memory.
    tables : sequence of str
        Their names, which are those of the files.

    Returns
    -------
    list of Path
        The files, in this order.

    Raises
    ------
    ReadError
        If tpchgen-cli is not installed or fails.
    """
    beside = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise ReadError("tpchgen-cli is not installed.", advice="pip install tpchgen-cli, or give --files of your own.")
    what = "--row-group-bytes 4MB --overwrite -q".split()
    command = [program, "parquet", "-T", ",".join(tables), *what, "-s", f"{scale:g}", "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ReadError(f"tpchgen-cli ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return [Path(folder) / f"{table}.parquet" for table in tables]


def latest(lab: Cluster, last: int | None = None) -> pd.DataFrame:
    """Return what was measured of the latest operations, one row each, with sizes in MiB: a table to read and to plot.

    Parameters
    ----------
    lab : Cluster
    last : int, optional
        How many; all by default.

    Returns
    -------
    pandas.DataFrame
        operation, strategy, rounds, seconds (of the slowest rank), and of the rank that needed most: predicted MiB and
        peak MiB of its budget MiB; staged MiB of all ranks together.
    """
    import pandas as pd

    rows = summary(lab.snapshots())["operations"]
    sizes = {
        "predicted MiB": "predicted_peak_bytes", "peak MiB": "measured_peak_bytes", "budget MiB": "budget_bytes",
        "staged MiB": "staged_bytes",
    }  # fmt: skip
    table = [
        {"operation": row["verb"], "strategy": row["strategy"] or "-", "rounds": row["rounds"]}
        | {"seconds": round(row["seconds"], 3)}
        | {title: round(row[field] / _MIB, 2) for title, field in sizes.items()}
        for row in rows[-last if last else 0 :]
    ]
    return pd.DataFrame(table)

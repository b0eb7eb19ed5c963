"""``gcylon-lab``: doctor, demo, lab, bench, report and cache."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._version import __version__
from ..errors import GcylonError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; the process's own by default.

    Returns
    -------
    int
        The exit status: 0 all well, 1 an error that was said, 2 wrong usage, 130 interrupted.
    """
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except GcylonError as error:
        print(f"gcylon-lab: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gcylon-lab: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gcylon-lab", description="Distributed tables inside a memory budget.")
    parser.add_argument("--version", action="version", version=f"gcylon-lab {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_doctor, _add_demo, _add_lab, _add_bench, _add_report, _add_cache):
        add(commands)
    return parser


def _add_doctor(commands: Commands) -> None:
    parser = commands.add_parser("doctor", help="say what is installed, what will be used, and why")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--engines", action="store_true", help="say what GPU engines refuse or answer otherwise")
    parser.add_argument(
        "--hosts", help="hosts that ranks are to run on, as node1,node2, or a file of them: examine those too"
    )
    parser.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    if arguments.engines:
        from ..backends.refusals import as_text

        print(as_text())
        return 0
    from .doctor import as_json, examine, format_findings, healthy

    findings = examine()
    if arguments.hosts:
        from .doctor_hosts import examine_hosts

        findings += examine_hosts(arguments.hosts)
    print(json.dumps(as_json(findings), indent=2) if arguments.json else format_findings(findings))
    return 0 if healthy(findings) else 1


def _add_demo(commands: Commands) -> None:
    parser = commands.add_parser("demo", help="do the main job on real input, and write a report")
    parser.add_argument("--ranks", type=int, help="engines to start (default: one a core, 2 to 4)")
    parser.add_argument("--scale", type=float, default=0.2, help="TPC-H scale factor of the input (default: 0.2)")
    parser.add_argument("--budget", default="32MiB", help="of the staged operations on each rank (default: 32MiB)")
    parser.add_argument("--files", nargs="+", help="parquet, csv or json files of your own, instead of TPC-H")
    parser.add_argument("--key", help="column to shuffle on; needed with --files")
    parser.add_argument("--out", default="gcylon-lab-demo", help="folder for the report (default: gcylon-lab-demo)")
    parser.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from ..bench.demo import Demo

    Demo.from_arguments(arguments).run()
    return 0


def _add_lab(commands: Commands) -> None:
    parser = commands.add_parser("lab", help="open JupyterLab on the tutorials")
    text = "folder for your copy of the tutorials; what stands there is kept (default: gcylon-lab-tutorials)"
    parser.add_argument("--dir", default="gcylon-lab-tutorials", help=text)
    parser.add_argument("jupyter", nargs="*", help="arguments for `jupyter lab`, after --")
    parser.set_defaults(run=_lab)


def _lab(arguments: argparse.Namespace) -> int:
    from ..tutorials import open_lab

    open_lab(arguments.dir, arguments.jupyter)


def _add_bench(commands: Commands) -> None:
    from ..bench import commands as benches

    parser = commands.add_parser("bench", help="measure, against peers where there are any")
    benches.add(parser)


def _add_report(commands: Commands) -> None:
    parser = commands.add_parser("report", help="show what a demo or a notebook recorded")
    parser.add_argument("snapshots", help="a snapshots.json, as `demo` writes it")
    parser.add_argument("--html", help="write the HTML report here")
    parser.add_argument("--trace", help="write a Chrome trace here")
    parser.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    from ..bench.harness.recordings import show

    show(arguments.snapshots, html=arguments.html, trace=arguments.trace)
    return 0


def _add_cache(commands: Commands) -> None:
    parser = commands.add_parser("cache", help="show the cache of compiled kernels, or clear it")
    parser.add_argument("--clear", action="store_true", help="remove what it has")
    parser.set_defaults(run=_cache)


def _cache(arguments: argparse.Namespace) -> int:
    from ..backends.kernels import cache

    if arguments.clear:
        print(f"{cache.clear()} removed")
    print(cache.state().describe())
    return 0

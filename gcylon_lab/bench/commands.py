"""The sub-commands of ``gcylon-lab bench``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from ..units import parse_bytes

Report = dict[str, Any]
_FORMATS = ("text", "markdown", "html", "json", "latex")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the benches to a parser."""
    commands = parser.add_subparsers(required=True, metavar="BENCH")
    shuffle = _new(commands, "shuffle", "our shuffle beside a bare numpy and MPI loop and dask", _shuffle)
    _add_case(shuffle)
    shuffle.add_argument("--peers", default="bare,dask", help="comma-separated; '' for none (default: bare,dask)")
    join = _new(commands, "join", "our join beside dask's merge", _join)
    _add_case(join)
    join.add_argument("--no-peers", action="store_true", help="leave dask out")
    sort = _new(commands, "sort", "our sort beside dask's and pandas'", _sort)
    _add_case(sort)
    sort.add_argument("--peers", default="dask,pandas", help="comma-separated; '' for none (default: dask,pandas)")
    groupby = _new(commands, "groupby", "our group-by beside dask's and pandas'", _groupby)
    _add_case(groupby)
    groupby.add_argument("--keys", type=int, default=100_000, help="different keys (default: 100000)")
    groupby.add_argument("--peers", default="dask,pandas", help="comma-separated; '' for none (default: dask,pandas)")
    tpch = _new(commands, "tpch", "queries of TPC-H beside DuckDB, and in a small budget", _tpch)
    tpch.add_argument("--scale", type=float, default=1.0, help="1 is 6 million rows of lineitem (default: 1)")
    tpch.add_argument("--ranks", type=int, default=2)
    tpch.add_argument("--queries", default="", help="comma-separated numbers; all by default")
    tpch.add_argument("--budget-share", type=float, default=0.1, help="of the columns read; 0 for none (default: 0.1)")
    tpch.add_argument("--repeats", type=int, default=3)
    tpch.add_argument("--threads", type=int, default=0, help="of DuckDB (default: as many as ranks)")
    tpch.add_argument("--px", action="store_true", help="the ranks run the queries' code, as in a %%%%px cell")
    files = _new(commands, "files", "reading and writing files beside the library that does it alone", _files)
    files.add_argument("--ranks", type=int, default=1)
    files.add_argument("--megabytes", type=int, default=256, help="of each table in memory (default: 256)")
    for name in ("formats", "kinds", "actions"):
        files.add_argument(f"--{name}", default="", help="comma-separated; all by default")
    files.add_argument("--repeats", type=int, default=5)
    files.add_argument("--warmup", type=int, default=1)
    files.add_argument("--no-peers", action="store_true", help="leave the library out")
    _add_case(_new(commands, "profiling", "what recording costs beside the work it records", _profiling))
    cluster = _new(commands, "cluster", "start, round trip and moving rows beside ipyparallel's own", _cluster)
    cluster.add_argument("--ranks", type=int, default=2)
    cluster.add_argument("--starts", type=int, default=3)
    cluster.add_argument("--trips", type=int, default=50)
    cluster.add_argument("--megabytes", type=int, default=256, help="of rows that go there and back")
    peak = _new(commands, "peak", "memory of a staged shuffle of parts above the budget", _peak, timed=False)
    peak.add_argument("--ranks", type=int, default=4)
    peak.add_argument("--part", default="512MiB", help="bytes on each rank (default: 512MiB)")
    peak.add_argument("--budget", default="64MiB", help="budget of each rank (default: 64MiB)")
    means = "messages, metadata and memory of verbs on many ranks, counted; their time by a model"
    scale = _new(commands, "scale", means, _scale, timed=False)
    scale.add_argument("--ranks", default="2,8,32,128,512,1024", help="comma-separated (default: 2,8,32,128,512,1024)")
    scale.add_argument("--mpi", action="store_true", help="on MPI processes, not on threads")
    scale.add_argument("--per-host", type=int, default=8, help="ranks on a host of the model (default: 8)")
    scale.add_argument("--rows", type=int, default=200, help="rows on each rank (default: 200)")
    means = "memory and time of verbs under budgets of 1.5 to 1/50 of their input"
    budget = _new(commands, "budget", means, _budget, timed=False)
    _add_budget(budget)
    means = "how live the dashboard is, and what it costs, in a real browser"
    board = _new(commands, "dashboard", means, _dashboard, timed=False)
    board.add_argument("--ranks", type=int, default=2)
    board.add_argument("--rows", type=int, default=40_000_000, help="rows on each rank (default: 40000000)")
    board.add_argument("--turns", type=int, default=5, help="shuffles with it open and without (default: 5)")
    board.add_argument("--minutes", type=float, default=2.0, help="how long to watch memory (default: 2)")
    seen = _new(commands, "seen", "how soon memory that is taken shows in our dashboard, and in dask's", _seen)
    seen.add_argument("--repeats", type=int, default=10)
    seen.add_argument("--no-peers", action="store_true", help="leave dask out")
    gpu = _new(commands, "gpu", "our verbs on GPUs beside the bare exchange, pinned copies and rapidsmpf", _gpu)
    gpu.add_argument("--ranks", type=int, default=4, help="one GPU each, or sharing what there is (default: 4)")
    gpu.add_argument("--rows", type=float, default=125e6, help="rows on each rank (default: 125e6)")
    gpu.add_argument("--repeats", type=int, default=7)
    gpu.add_argument("--warmup", type=int, default=2)
    gpu.add_argument("--cases", default="", help="comma-separated names of lines; all by default")
    gpu.add_argument("--no-peers", action="store_true", help="leave rapidsmpf and cudf-polars out")
    gpu.add_argument(
        "--tables", choices=("plain", "tpch", "relational"), default="plain",
        help="tpch: strings, dates, decimals, nulls; relational: join, sort and group-by, beside cudf-polars",
    )  # fmt: skip
    gpu.add_argument("--scale", type=float, default=0.0, help="of --tables tpch, on all ranks (default: 1.2 a rank)")
    gpu.add_argument("--profiling", action="store_true", help="what recording costs instead: on and off take turns")


def _new(
    commands: Any, name: str, text: str, run: Callable[[argparse.Namespace], int], *, timed: bool = True
) -> argparse.ArgumentParser:
    """Add a bench; ``timed`` where it measures series of times, which can be compared."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("--json", metavar="FILE", help="also write the figures and the machine here")
    if timed:
        means = "a file of --json: say what is faster or slower than it; the exit status is 1 where something is"
        parser.add_argument("--baseline", metavar="FILE", help=means)
        means = "a change of the median by no more than this share is none (default: 0.1)"
        parser.add_argument("--threshold", type=float, default=0.1, help=means)
        parser.add_argument("--format", choices=_FORMATS, default="text", help="of what is printed (default: text)")
    parser.set_defaults(run=lambda arguments: _with_baseline(arguments, run))
    return parser


def _with_baseline(arguments: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    if getattr(arguments, "baseline", None):
        from .benchmark import Benchmark

        Benchmark().compare(arguments.baseline, arguments.threshold)  # what is wrong with it is said before the work
    return run(arguments)


def _add_case(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows on each rank (default: 5000000)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)


def _add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--part", default="64MB", help="about so many bytes on each rank (default: 64MB)")
    examples = {"verbs": "join,groupby", "dtypes": "int,str", "skews": "uniform", "strategies": "auto"}
    for name, example in examples.items():
        parser.add_argument(f"--{name}", default="", help=f"comma-separated, as {example} (default: all)")
    parser.add_argument("--limits", default="1.5,0.5,0.1,0.02", help="shares of the input (default: 1.5,0.5,0.1,0.02)")


def _case(arguments: argparse.Namespace) -> Any:
    from .harness.cases import ShuffleCase

    if min(arguments.ranks, arguments.rows, arguments.repeats) < 1 or arguments.warmup < 0:
        raise ArgumentError("ranks, rows and repeats are at least 1, warmup is at least 0.")
    return ShuffleCase(ranks=arguments.ranks, rows=arguments.rows, repeats=arguments.repeats, warmup=arguments.warmup)


def _shuffle(arguments: argparse.Namespace) -> int:
    from .harness.reports import format_shuffle

    return _take_turns(arguments, "shuffle", format_shuffle)


def _sort(arguments: argparse.Namespace) -> int:
    from .harness.reports import format_shuffle

    return _take_turns(arguments, "sort", format_shuffle)


def _groupby(arguments: argparse.Namespace) -> int:
    from .verbs.groupby import format_groupby

    return _take_turns(arguments, "groupby", format_groupby, keys=max(1, arguments.keys))


def _join(arguments: argparse.Namespace) -> int:
    from .verbs.join import format_join

    return _take_turns(arguments, "join", format_join)


def _take_turns(arguments: argparse.Namespace, verb: str, show: Callable[[Report], str], **more: int) -> int:
    from .verbs.turns import CASES, PEERS, run

    given = _case(arguments)
    case = CASES[verb](ranks=given.ranks, rows=given.rows, repeats=given.repeats, warmup=given.warmup, **more)
    if verb == "join":
        peers = () if arguments.no_peers else PEERS[verb]
    else:
        peers = _peers(arguments, PEERS[verb])
    return _finish(arguments, run(verb, case, peers), show)


def _peers(arguments: argparse.Namespace, known: tuple[str, ...]) -> tuple[str, ...]:
    peers = tuple(name for name in arguments.peers.split(",") if name)
    unknown = sorted(set(peers) - set(known))
    if unknown:
        raise ArgumentError(f"--peers {','.join(unknown)} is invalid.", advice=f"Expected {' or '.join(known)}.")
    return peers


def _tpch(arguments: argparse.Namespace) -> int:
    from .tpch.queries import QUERIES
    from .tpch.tpch import TpchCase, format_tpch, is_right, run

    numbers = [text.strip() for text in arguments.queries.split(",") if text.strip()]
    if not all(number.isdigit() for number in numbers):
        raise ArgumentError(f"Expected numbers for --queries, got {arguments.queries}.", advice="Give for example 1,3.")
    report = run(
        TpchCase(
            scale=arguments.scale,
            ranks=arguments.ranks,
            queries=tuple(map(int, numbers)) or tuple(QUERIES),
            budget_share=arguments.budget_share,
            repeats=arguments.repeats,
            px=arguments.px,
            threads=arguments.threads,
        )  # fmt: skip
    )
    status = _finish(arguments, report, format_tpch)
    return status if is_right(report) else 1


def _files(arguments: argparse.Namespace) -> int:
    from .files.case import ACTIONS, FORMATS, KINDS, FilesCase
    from .files.files import format_files, run

    if min(arguments.ranks, arguments.megabytes, arguments.repeats) < 1 or arguments.warmup < 0:
        raise ArgumentError("ranks, megabytes and repeats are at least 1, warmup is at least 0.")
    chosen = {}
    for option, known in (("formats", FORMATS), ("kinds", KINDS), ("actions", ACTIONS)):
        given = getattr(arguments, option)
        chosen[option] = tuple(name.strip() for name in given.split(",") if name.strip()) or known
        if unknown := sorted(set(chosen[option]) - set(known)):
            raise ArgumentError(f"--{option} {','.join(unknown)} is invalid.", advice=f"Expected {', '.join(known)}.")
    case = FilesCase(
        megabytes=arguments.megabytes,
        ranks=arguments.ranks,
        repeats=arguments.repeats,
        warmup=arguments.warmup,
        **chosen,
    )
    return _finish(arguments, run(case, peer=not arguments.no_peers), format_files)


def _profiling(arguments: argparse.Namespace) -> int:
    from .harness.reports import format_profiling
    from .profiling import run

    return _finish(arguments, run(_case(arguments)), format_profiling)


def _cluster(arguments: argparse.Namespace) -> int:
    from .cluster import run
    from .harness.reports import format_cluster

    return _finish(
        arguments, run(arguments.ranks, arguments.starts, arguments.trips, arguments.megabytes), format_cluster
    )


def _peak(arguments: argparse.Namespace) -> int:
    from .harness.reports import format_peak
    from .peak import run

    report = run(arguments.ranks, parse_bytes(arguments.part), parse_bytes(arguments.budget))
    return _finish(arguments, report, format_peak)


def _scale(arguments: argparse.Namespace) -> int:
    from .harness.reports import tell
    from .scale import format_scale, run

    try:
        ranks = [int(text) for text in arguments.ranks.split(",")]
    except ValueError:
        ranks = []
    if not ranks or min(ranks) < 2 or min(arguments.rows, arguments.per_host) < 1:
        raise ArgumentError(
            f"Expected numbers of 2 or more for --ranks, and of 1 or more for --rows and --per-host, got "
            f"{arguments.ranks}, {arguments.rows} and {arguments.per_host}.",
            advice="Give for example --ranks 2,8,32.",
        )
    report = run(ranks, mpi=arguments.mpi, rows=arguments.rows, per_host=arguments.per_host, say=tell)
    return _finish(arguments, report, format_scale)


def _budget(arguments: argparse.Namespace) -> int:
    from .budget import BudgetCase, format_budget, run

    def names(text: str) -> tuple[str, ...]:
        return tuple(name.strip() for name in text.split(",") if name.strip())

    try:
        shares = tuple(map(float, names(arguments.limits)))
    except ValueError:
        raise ArgumentError(
            f"Expected numbers for --limits, got {arguments.limits}.", advice="Give for example 1.5,0.1."
        ) from None
    chosen = {"verbs": arguments.verbs, "kinds": arguments.dtypes, "skews": arguments.skews,
              "strategies": arguments.strategies}  # fmt: skip
    case = BudgetCase(
        ranks=arguments.ranks, part_bytes=parse_bytes(arguments.part), shares=shares,
        **{name: names(text) for name, text in chosen.items() if text},
    )  # fmt: skip
    report = run(case)
    _finish(arguments, report, format_budget)
    return 0 if report["summary"]["holds"] else 1


def _dashboard(arguments: argparse.Namespace) -> int:
    from .dashboard.dashboard import check, format_dashboard, run

    case = (arguments.ranks, arguments.rows, arguments.turns, arguments.minutes)
    check(*case)
    return _finish(arguments, run(*case), format_dashboard)


def _seen(arguments: argparse.Namespace) -> int:
    from .dashboard.display_latency import format_seen, run

    return _finish(arguments, run(arguments.repeats, peers=not arguments.no_peers), format_seen)


def _gpu(arguments: argparse.Namespace) -> int:
    cases = tuple(name.strip() for name in arguments.cases.split(",") if name.strip())
    if arguments.profiling:
        return _gpu_profiling(arguments)
    if arguments.tables == "tpch":
        return _gpu_tables(arguments, cases)
    if arguments.tables == "relational":
        return _gpu_relational(arguments, cases)
    from .gpu.gpu import format_gpu, run

    report = run(
        arguments.ranks, int(arguments.rows), arguments.repeats, arguments.warmup,
        cases=cases, peers=not arguments.no_peers,
    )  # fmt: skip
    return _finish(arguments, report, format_gpu)


def _gpu_tables(arguments: argparse.Namespace, cases: tuple[str, ...]) -> int:
    from .gpu.tables import format_tables, run

    report = run(
        arguments.ranks, arguments.scale, arguments.repeats, arguments.warmup,
        cases=cases, peers=not arguments.no_peers,
    )  # fmt: skip
    return _finish(arguments, report, format_tables)


def _gpu_relational(arguments: argparse.Namespace, cases: tuple[str, ...]) -> int:
    from .gpu.relational import format_relational, run

    report = run(
        arguments.ranks, int(arguments.rows), arguments.repeats, arguments.warmup,
        cases=cases, peers=not arguments.no_peers,
    )  # fmt: skip
    return _finish(arguments, report, format_relational)


def _gpu_profiling(arguments: argparse.Namespace) -> int:
    from .gpu.profiling import format_cost, run

    report = run(arguments.ranks, int(arguments.rows), arguments.repeats, arguments.warmup)
    return _finish(arguments, report, format_cost)


def _finish(arguments: argparse.Namespace, report: Report, show: Callable[[Report], str]) -> int:
    """Print and write a report; the exit status is 1 where it is slower than the baseline that was given."""
    from .harness.reports import as_json, write_json

    if arguments.json:
        write_json(arguments.json, report)
    form, baseline = getattr(arguments, "format", "text"), getattr(arguments, "baseline", None)
    if form == "text" and baseline is None:
        print(show(report))
        return 0
    from .benchmark import Benchmark

    bench = Benchmark.from_report(report)
    compared = bench.compare(baseline, arguments.threshold) if baseline else None
    if form == "json":
        print(as_json(report | ({"comparison": compared.as_dict()} if compared else {})), end="")
    else:
        print(show(report) if form == "text" else bench.to(form))
        if compared:
            print(f"\n{compared.to(form)}")
    return 1 if compared and compared.regressed else 0

"""`Cluster`: the notebook's side of N engines."""

from __future__ import annotations

import atexit
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ...backends.protocol.methods.signatures import fit
from ...config import GcylonConfig, check_limit, read_settings, warn_of_unread
from ...errors import ArgumentError, ConfigError, warn
from ...profiling import by_span
from ...profiling.sampler import checked_hz
from ...runtime.device_status import device_status
from ...runtime.posts import Messages, read_messages
from ...runtime.registry import clusters
from ..channel.progress import ProgressCallback, in_kernel
from ..channel.stall_detector import find_stalled
from ..channel.views import activate, is_active, latest
from ..failures import name_ranks
from ..handles.async_verbs import with_async
from ..handles.display_name import made_at, memory_names, with_id
from ..handles.forwarding import as_reference, tables_in, with_before
from ..launch.hosts import Host, check_slots, read_hosts
from ..launch.launcher import Launcher
from ..launch.mpiexec import MpiExec, check_over_hosts, find_mpiexec
from ..launch.runtime_dirs import find_running
from ..launch.security import Security, check_name, choose_security, security_over_hosts
from ..launch.slurm import Asked, Job, found_job
from ..messages import Reply, Request
from ..rank_info import RankRecord
from .client_hints import NamesInstead
from .feed import Feed
from .readers import Readers
from .session import Session
from .telemetry import MetricsExport

if TYPE_CHECKING:
    import pandas as pd

    from ...profiling.snapshot import RankSnapshot
    from ..handles.handle import DistTable

T = TypeVar("T")

# What needs no turn of its own, or cannot wait for one.
_NOT_LATER = (
    "status", "snapshots", "by_span", "messages", "export_metrics", "on_progress", "interrupt", "revoke", "recover",
    "restart", "detach", "close",
)  # fmt: skip


@with_async(but=_NOT_LATER)
class Cluster(Readers, NamesInstead):
    """N engines, one MPI rank each, and the tables on them.

    Readers, `table`, `memory` and `run` have one with ``_async`` at their end, which returns at once; see `VerbFuture`.

    Starting it takes some seconds. Asked for again with the same arguments, as when a cell runs twice, the one that
    runs is taken, with its tables. One of other arguments takes the place of one of its name, which it closes.

    Parameters
    ----------
    n : int, optional
        Ranks; by default one for each CPU that this process may use, at most 4, or as many as `hosts` take.
    hosts : sequence of str, or path, optional
        Where the ranks are, as ``["node1:4", "node2:4"]``: hosts and how many ranks each may have, or a file with one a
        line. They are reached by ssh, without a password, and have this Python and its packages under the same path.
        This host can be one of them. `slurm` takes those of a job.
    config : GcylonConfig, optional
        What the ranks start with; its limit becomes their ceiling. The environment and defaults otherwise.
    mpi : {"auto", "openmpi", "mpich"} or path
        Which mpiexec to use.
    grace_s : float
        How long the engines outlive this process, so that `attach` finds them. In seconds.
    prelude : str or path, optional
        Python code that every engine runs at start and after each `restart`.
    name : str
        For `attach`.
    start_timeout_s : float
    env : dict, optional
        Variables for the engines, beside this process's own; ``GCYLON_*`` ones are read as those are.
    progress : bool
        Whether to show a line of progress for what takes longer than a second.
    security : {"auto", "encrypted", "signed"}
        Messages to and from the ranks are signed, and go over Unix sockets in a folder that no other user can enter.
        "encrypted" (CurveZMQ) encrypts them as well. "auto" is what ``GCYLON_SECURITY`` says; without it, "signed".
        Over several hosts they go over TCP, encrypted in any case.
    profile : bool or float, default True
        Whether ranks record spans and sample their memory; a number is the rate, in samples a second. See `profile`.
    replace : bool, default False
        Whether one of the same name and arguments is closed, with its tables, for a new one.

    Raises
    ------
    ClusterStartError
        If the engines do not come up; the message has the launcher's output.
    """

    def __new__(cls, n: int | None = None, *, name: str = "default", replace: bool = False, **asked: Any) -> Cluster:
        """The cluster that runs, if it is what is asked for."""
        fit("Cluster", inspect.signature(cls.__init__), (cls, n), asked)
        running: Cluster | None = None if replace else clusters.get(str(name))
        if running is None or running._asked != _comparable(n, asked) or not running._session.is_well():
            return super().__new__(cls)
        tables = len(running._session.infos)
        print(
            f"The cluster {name!r} that runs is taken, with {tables} table{'s' * (tables != 1)} "
            "(replace=True starts a new one)."
        )
        return running

    def __init__(
        self,
        n: int | None = None,
        *,
        hosts: Sequence[str] | str | Path | Job | None = None,
        config: GcylonConfig | None = None,
        mpi: str = "auto",
        grace_s: float = 60.0,
        prelude: str | Path | None = None,
        name: str = "default",
        start_timeout_s: float = 120.0,
        env: dict[str, str] | None = None,
        progress: bool = True,
        security: str = "auto",
        profile: bool | float = True,
        replace: bool = False,
    ) -> None:
        if "_session" in self.__dict__:
            return  # it runs already
        given = {
            "hosts": hosts, "config": config, "mpi": mpi, "grace_s": grace_s, "prelude": prelude, "env": env,
            "start_timeout_s": start_timeout_s, "progress": progress, "security": security, "profile": profile,
        }  # fmt: skip
        self._asked = _comparable(n, given)
        job = hosts if isinstance(hosts, Job) else None
        read = () if hosts is None else job.expected() if job else read_hosts(hosts)  # type: ignore[arg-type]
        n = n if n is not None else sum(host.slots for host in read) or _default_ranks()
        environ = os.environ | (env or {})
        warn_of_unread(environ)
        _check_arguments(n, config, grace_s)
        config = config or GcylonConfig(**read_settings(environ))
        check_limit(config)
        check_slots(n, read)
        check_name(name)
        hz = checked_hz(profile)
        code = prelude.read_text() if isinstance(prelude, Path) else prelude or ""
        launcher = Launcher(
            n,
            check_over_hosts(find_mpiexec(mpi)) if read else find_mpiexec(mpi),
            name=name,
            grace_s=grace_s,
            start_timeout_s=start_timeout_s,
            environment=dict(env or {}),
            config=config,
            security=security_over_hosts(security) if read else choose_security(security),
            hosts=() if job else read,
            job=job,
        )
        if name in clusters:
            clusters[name]._give_way()
        self._session = Session(launcher, name, code, progress=progress, profile_hz=hz)
        self._session.start()
        clusters[name] = self

    @classmethod
    def slurm(
        cls,
        nodes: int | None = None,
        tasks_per_node: int = 1,
        *,
        gpus_per_task: int = 0,
        time: str = "",
        partition: str = "",
        options: Sequence[str] = (),
        **cluster: Any,
    ) -> Cluster:
        """Start ranks in a job of Slurm: a new one, or the one that this process runs in.

        From a login node a job is submitted, and waited for in the queue; a line says its number and what it waits
        for. `close` cancels it, as does the end of this process after the grace time. Where this process runs in a job,
        ranks run in that, which stays. The ranks' hosts must reach this one.

        Parameters
        ----------
        nodes : int, optional
            Hosts; without it, all of the job that this process runs in.
        tasks_per_node : int, default 1
            Ranks on each.
        gpus_per_task : int, default 0
            GPUs for each rank.
        time : str, optional
            Limit of the job, as "1:00:00".
        partition : str, optional
        options : sequence of str
            More options of sbatch, as ``["--account=physics"]``.
        **cluster
            As for `Cluster`: name, config, prelude and the others.

        Raises
        ------
        ClusterStartError
            If the job cannot be submitted, or ends before it runs.

        Examples
        --------
        >>> lab = gl.Cluster.slurm(nodes=2, tasks_per_node=4, time="1:00:00")  # doctest: +SKIP
        """
        asked = Asked(0 if nodes is None else nodes, tasks_per_node, gpus_per_task, time, partition, tuple(options))
        return cls(hosts=Job(asked), **cluster)

    @classmethod
    def attach(cls, name: str = "default", *, progress: bool = True) -> Cluster:
        """Take over a running cluster whose notebook kernel is gone, within its grace time.

        Tables that had a name in the engines are reached with `table`, as are
        the others, by the ids that `memory` shows.

        Raises
        ------
        ClusterError
            If there is none of that name, another process still owns it, or its files are not this user's alone.
        """
        check_name(name)
        if name in clusters and not clusters[name]._session.closed:
            found: Cluster = clusters[name]
            return found
        home, state = find_running(name)
        launcher = Launcher(
            int(state["n"]),
            MpiExec(**state["mpi"]),
            name=name,
            grace_s=state["grace_s"],
            start_timeout_s=state["start_timeout_s"],
            environment=state["environment"],
            config=GcylonConfig(**state["config"]),
            security=Security(**state["security"]),
            hosts=[Host(**host) for host in state["hosts"]],
            job=found_job(state["job"]),
            home=home,
        )
        self: Cluster = object.__new__(cls)
        self._asked = {"n": int(state["n"])}
        self._session = Session(launcher, name, state["prelude"], progress=progress)
        self._session.attach()
        clusters[name] = self
        return self

    # --- tables ---

    def table(self, name: str) -> DistTable:
        """A handle of a variable that holds a `Table` on every engine, or of a stored table's id, as "#2".

        Variables of the notebook are none of the engines: after `attach` a table is found by the name that `bind` gave
        it, or by its id, which `memory` lists.

        Raises
        ------
        ArgumentError
            If a rank has something else under that name, or nothing.
        """
        from ..handles.handle import DistTable

        def handle(result: str, replies: list[Reply]) -> DistTable:
            wrong: dict[str, list[int]] = {}
            for reply in replies:
                if reply.info is None:
                    wrong.setdefault(reply.value, []).append(reply.rank)
            if wrong:
                said = "; ".join(f"{name_ranks(ranks)}: {what}" for what, ranks in wrong.items())
                advice = f"Make it with %px, for example %px {name} = gl.read_parquet(...)"
                if set(wrong) == {"nothing"}:
                    advice = f"Bind it before (t.bind({name!r})), or take it by its id: lab.memory() lists them"
                raise ArgumentError(f"{name!r} is not a Table on every rank ({said}).", advice=f"{advice}.")
            return DistTable(self._session, result, replies)

        return self._session.make(Request("adopt", args=(name,)), handle)

    def memory(self) -> pd.DataFrame:
        """The tables on the engines, one row for each rank: what it is called, id, rows, bytes, bytes by tier.

        Of device_bytes, external_bytes are in memory that another library has handed over. A table is called by the
        notebook's variables that refer to it, else by how it was made ("join of orders and #5"), and by variables of
        ``%px``. `table` gives a handle for an id.
        """
        from .byte_frame import ByteFrame

        rows = []
        for reply in self._session.call(Request("memory")):
            for info in reply.value:
                row: dict[str, Any] = {
                    "table": memory_names(self._session, info["ids"], info["names"]),
                    "id": ", ".join(info["ids"]),
                }
                row |= {"rank": reply.rank, "rows": info["rows"], "bytes": info["nbytes"]}
                row |= {f"{tier}_bytes": nbytes for tier, nbytes in info["tiers"].items()}
                rows.append(row | {"external_bytes": info["external_bytes"]})
        rows.sort(key=lambda row: (made_at(row["id"]), row["table"], row["rank"]))
        return ByteFrame(rows, columns=None if rows else ["table", "id", "rank", "rows", "bytes"])

    def memory_info(self) -> pd.DataFrame:
        """The memory of each rank's GPU or host beside its budget, a row a rank; columns as of `Context.memory_info`.

        Examples
        --------
        >>> lab.memory_info()[["rank", "device", "free_bytes", "budget_used_bytes", "outside_bytes"]]  # doctest: +SKIP
        """
        from .byte_frame import ByteFrame

        return ByteFrame([reply.value for reply in self._session.call(Request("memory_info"))])

    def pools(self) -> pd.DataFrame:
        """What the ranks keep of memory to use it again, a row a rank and pool; columns as of `Context.pools`.

        Examples
        --------
        >>> lab.pools()[["rank", "pool", "held_bytes", "used_bytes", "hit_rate"]]  # doctest: +SKIP
        """
        from .byte_frame import ByteFrame

        return ByteFrame([row for reply in self._session.call(Request("pools")) for row in reply.value])

    def trim(self) -> pd.DataFrame:
        """Give what the ranks keep of memory and do not use back to the system; a row a rank, as of `Context.trim`.

        Examples
        --------
        >>> lab.trim()[["rank", "kept_bytes", "pinned_bytes", "resident_bytes"]]  # doctest: +SKIP
        """
        from .byte_frame import ByteFrame

        return ByteFrame([reply.value for reply in self._session.call(Request("trim"))])

    def run(self, function: Callable[..., T], *args: Any, timeout_s: float | None = None) -> list[T]:
        """Call a function on every rank; return what the ranks return, in rank order.

        Parameters
        ----------
        function : callable
            Runs as ``%px`` code does, and modules that it uses are imported there; handles among ``args`` arrive as
            the rank's `Table`.
        """
        references = tuple(as_reference(self._session, value) for value in args)
        with with_before(self._session, Request("run", args=references), *tables_in(args)) as request:
            replies = self._session.call(request, function, timeout_s=timeout_s)
        return [reply.value for reply in replies]

    # --- state ---

    @property
    def name(self) -> str:
        """What `attach` knows it by."""
        return self._session.name

    @property
    def n(self) -> int:
        """Number of ranks."""
        return self._session.launcher.n

    @property
    def ranks(self) -> list[RankRecord]:
        """Who the ranks are: rank, host, pid, device, engine id; in rank order."""
        return list(self._session.ranks)

    @property
    def client(self) -> Any:
        """The ipyparallel client. Work sent through other views than `view` may reach the ranks in another order."""
        return self._session.client

    @property
    def view(self) -> Any:
        """The one view of the engines, which ``%px`` uses too."""
        return self._session.channel.view

    @property
    def feed(self) -> Feed:
        """Live recordings of the ranks."""
        return self._session.feed

    @property
    def config(self) -> GcylonConfig:
        """The config of the next operation. Setting it never waits for a running one."""
        return self._session.config

    @config.setter
    def config(self, config: GcylonConfig) -> None:
        if not isinstance(config, GcylonConfig):
            raise ConfigError(
                f"Expected a GcylonConfig for config, got {config!r}.",
                advice="Set for example lab.config.with_values(...).",
            )
        check_limit(config)
        self._session.set_config(config)

    @property
    def profile(self) -> bool | float:
        """Whether ranks record spans and sample their memory: samples a second, or False.

        Set it to True, False or a rate; it never waits for a running operation, and holds after a `restart`. Operations
        are recorded in any case, without phases where it is off, and live figures of memory then stand still.
        """
        return self._session.profile_hz or False

    @profile.setter
    def profile(self, profile: bool | float) -> None:
        self._session.set_profile(checked_hz(profile))

    def by_span(self) -> pd.DataFrame:
        """How often spans ran on the ranks and how long they took, by name, category and rank; those of your own too.

        Returns
        -------
        pandas.DataFrame
            count, and in seconds total_s, mean_s, p50_s, p95_s, max_s: of whole spans, with those inside them. Of the
            latest spans that are kept, 20,000 a rank; ``attrs["dropped_events"]`` counts what ranks dropped.
        """
        return by_span(self.snapshots())

    def messages(self, topic: str | None = None) -> Messages:
        """What code on the ranks has posted with ``gl.current().post(topic, value)``, also while it runs.

        Parameters
        ----------
        topic : str, optional
            All topics by default.

        Returns
        -------
        Messages
            A sequence of topic, value, rank and at_s in the order of time; ``dropped`` counts older ones that are gone,
            by rank, ``silent`` has ranks that did not answer, ``to_frame()`` gives a pandas frame.
        """
        self._session.check_open()
        answers = self._session.channel.control.ask({"ask": "messages", "topic": topic})
        silent = [rank for rank, answer in enumerate(answers) if answer is None]
        return read_messages([answer for answer in answers if answer is not None], silent)

    def export_metrics(
        self,
        endpoint: str | None = None,
        *,
        prometheus: int | None = None,
        prometheus_host: str = "127.0.0.1",
        every_s: float = 5.0,
    ) -> MetricsExport:
        """Send what the ranks record from now on to OpenTelemetry, or serve it to Prometheus, until `close`.

        Needs the extra ``otel``. Each operation is a trace, with a span of each rank, whose resource is the rank.
        Metrics are the duration of operations (a histogram), their number and input bytes, the throughput of the latest
        ones, memory by tier, and the budget. Neither has arguments of verbs, values, paths, or texts of errors.

        Parameters
        ----------
        endpoint : str, optional
            Base URL of an OTLP/HTTP receiver, for example "http://localhost:4318". Headers and certificates are read
            from OpenTelemetry's own ``OTEL_EXPORTER_OTLP_*`` variables.
        prometheus : int, optional
            Port of a page for Prometheus to scrape; 0 takes a free one. ``url`` of the result has its address.
        prometheus_host : str, default "127.0.0.1"
            Address that the page listens on: other hosts do not reach it. It has no login; whoever reaches another
            address reads it.
        every_s : float, default 5
            Seconds between two messages to the endpoint.

        Returns
        -------
        MetricsExport
            With ``flush()`` and ``close()``.

        Raises
        ------
        ArgumentError
            If neither is given, or one cannot be used.
        ClusterError
            If the port is in use.
        GcylonError
            If the extra is not installed.
        """
        session = self._session
        session.check_open()
        export = MetricsExport(
            session.name, session.feed, lambda: session.generation, endpoint=endpoint, prometheus=prometheus,
            prometheus_host=prometheus_host, every_s=every_s,
        )  # fmt: skip
        session.exports.append(export)
        return export

    def status(self) -> list[dict[str, Any]]:
        """What every rank is doing now, also while it works.

        Returns
        -------
        list of dict
            rank, host, pid, state ("idle", "busy", "stopped" by a signal or a debugger, "silent" or "gone", or
            "waiting" in an operation that an idle rank has not begun), running (an action's name), operation (the
            verb that it is in, or ""), progress.
        """
        session = self._session
        session.check_open()
        answers = session.channel.control.ask({"ask": "state"}, timeout_s=1.0)
        stop = session.channel.stops.now()
        stranded = find_stalled(answers)
        waiting = () if stranded is None else stranded.waiting
        rows = []
        for record, answer in zip(session.ranks, answers, strict=True):
            if answer is None:
                state = "stopped" if stop is not None and record.rank in stop.ranks else "silent"
                state = "gone" if record.rank in session.channel.lost else state
                answer = {"running": "", "progress": None}
            else:
                state = "waiting" if record.rank in waiting else "busy" if answer["running"] else "idle"
            row = {"rank": record.rank, "host": record.host, "pid": record.pid, "state": state}
            verb = answer["progress"]["verb"] if answer["progress"] else ""
            rows.append(row | {"running": answer["running"], "operation": verb, "progress": answer["progress"]})
        return rows

    def snapshots(self) -> list[RankSnapshot]:
        """What the ranks recorded so far, one snapshot each; also while they work."""
        return self.feed.snapshots()

    def on_progress(self, callback: ProgressCallback) -> None:
        """Call back with the ranks' states, a few times a second, while a request takes longer than a second."""
        self._session.waiting.callbacks.append(callback)

    # --- lifecycle ---

    def interrupt(self) -> None:
        """Free all ranks from what they are doing; works while another thread waits for them.

        Where it comes between two requests of a loop, the next one is not sent but raises `Revoked`.
        """
        self._session.channel.cut()

    def revoke(self) -> None:
        """Free ranks that wait for others, with an error; what a rank does by itself goes on until it next meets them.

        Where `interrupt` ends all work at once, this leaves a rank that computes alone in peace: it gets the error when
        it comes to its next collective. MPI libraries without a revoke (MPICH) have only `interrupt`.
        """
        self._session.channel.revoke()

    def recover(self) -> None:
        """Bring the ranks back together after a failure. Happens by itself before the next request."""
        self._session.channel.recover()

    def restart(self, n: int | None = None) -> None:
        """End all engines, start new ones, and run the prelude. Tables and handles are gone; the settings are kept.

        Parameters
        ----------
        n : int, optional
            Ranks, by default as many as before; where a host is gone, as many as the others take.

        `config` stays as it was last set, and holds for the prelude too. What new ranks do not take of it, such as a
        limit above what is free by now, is as at the start, and a warning says so. Their ceiling is that of the start.

        Raises
        ------
        ClusterStartError
            If the new engines do not come up.
        """
        if n is not None:
            _check_ranks(n)
        self._session.restart(n)

    def detach(self) -> None:
        """Leave the engines running for `attach` to find; they end after the grace time."""
        self._session.detach()
        self._forget()

    def close(self) -> None:
        """End engines and controller, and remove their files. Idempotent."""
        self._session.close()
        self._forget()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._session.closed:
            return f"<Cluster {self.name!r}, closed>"
        hosts = len({record.host for record in self.ranks})
        mpi = self._session.launcher.mpi.describe()
        return f"<Cluster {self.name!r}: {self.n} rank{'s' * (self.n > 1)} on {hosts} host{'s' * (hosts > 1)}, {mpi}>"

    def _repr_html_(self) -> str:
        from ..handles.html_repr import cluster_card, gone_card

        if self._session.closed:
            return gone_card(repr(self))
        mpi = self._session.launcher.mpi.describe().partition(" (")[0]  # without the path
        security = self._session.launcher.security.describe()
        gpus = device_status().summary()
        return cluster_card(self.name, self.ranks, mpi, len(self._session.infos), security, gpus)

    # --- inside ---

    @property
    def _display_name(self) -> str:
        return self.name

    def _give_way(self) -> None:
        """Close for another cluster of the same name, and say what goes with it."""
        if self._session.closed:
            return
        tables = [with_id(self._session, table) for table in sorted(self._session.infos, key=made_at)]
        gone = f", with its tables {', '.join(tables)} and what %px made there" if tables else ""
        warn(
            f"The cluster {self.name!r} that ran was closed{gone}: a new one of the same name takes its place. "
            "Give name= to keep both."
        )
        self.close()

    def _forget(self) -> None:
        if clusters.get(self.name) is self:
            del clusters[self.name]
        session = self._session
        if clusters and session.generation and is_active(session.channel.view):
            # %px goes back to the cluster before this one, of those that still live.
            activate(latest([cluster.view for cluster in clusters.values()]))


def _comparable(n: int | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a cluster was asked for, but for defaults; one of a job is what that is of."""
    plain = {name: getattr(value, "asked", value) for name, value in asked.items()}
    n = _default_ranks() if n is None and plain.get("hosts") is None else n
    return {"n": n} | {name: value for name, value in plain.items() if value != _DEFAULTS.get(name)}


def _default_ranks() -> int:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, count)


def _check_arguments(n: int, config: GcylonConfig | None, grace_s: float) -> None:
    _check_ranks(n)
    if config is not None and not isinstance(config, GcylonConfig):
        raise ConfigError(
            f"Expected a GcylonConfig for config, got {config!r}.",
            advice="Give for example gl.GcylonConfig.low_memory().",
        )
    if grace_s < 0:
        raise ArgumentError(f"grace_s={grace_s!r} is negative.", advice="Give a time in seconds; 60 is the default.")


def _check_ranks(n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ArgumentError(f"Expected a number of ranks for n, got {n!r}.", advice="Give an int of at least 1.")


@atexit.register
def _at_exit() -> None:
    """Scripts take their engines with them; a notebook's kernel may come back and `attach`."""
    for cluster in list(clusters.values()):
        if in_kernel():
            cluster.detach()
        else:
            cluster.close()


_DEFAULTS = {name: one.default for name, one in inspect.signature(Cluster.__init__).parameters.items()}

"""A cluster's life: engines are started or found, checked, used, restarted, left."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...config import GcylonConfig
from ...errors import ClusterError, ClusterStartError, GcylonError, Revoked, warn
from ...profiling.sampler import DEFAULT_HZ
from ..channel.channel import Channel
from ..channel.interrupts import not_sent, tell, undisturbed
from ..channel.progress import ProgressLine, Waiting, Where
from ..channel.request_queue import RequestQueue
from ..channel.views import activate
from ..failures import name_ranks
from ..handles.display_name import Provenance, provenance_of
from ..handles.futures import Later, VerbFuture
from ..launch import runtime_dirs
from ..launch.launcher import Launcher, Say
from ..launch.lease import LeaseHeartbeat
from ..messages import Reply, Request
from ..notebook_names import advise_names, modules_named
from ..rank_info import RankRecord, check_complete, check_identities, describe_lost_hosts
from ..row_stream import NotebookEnd
from ..rpc import ask
from ..tracebacks import shown_folded
from .feed import Feed
from .reattach import wait_until_idle
from .telemetry import MetricsExport

T = TypeVar("T")
H = TypeVar("H")

_MAX_KEEP_S = 5.0
# An engine beside many other programs was once seen not to answer within 5 s.
_CONFIG_TRIES = 3
_LAST_WORDS_S = 2.0  # on a busy machine the launcher writes of an end later than the controller tells of it


class Session:
    """The engines of one cluster, and the way to them.

    Parameters
    ----------
    launcher : Launcher
    name : str
    prelude : str
        Code that new engines run.
    progress : bool
        Whether to show a line of progress.
    profile_hz : float
        Samples a second of the ranks' profilers; 0 for none.
    """

    channel: Channel

    def __init__(
        self, launcher: Launcher, name: str, prelude: str, *, progress: bool, profile_hz: float = DEFAULT_HZ
    ) -> None:
        self.launcher = launcher
        self.name = name
        self.client: Any = None
        self.ranks: list[RankRecord] = []
        self.config = self._started_with = launcher.config
        self.profile_hz = profile_hz
        self.memory: list[dict[str, int]] = []
        self.infos: dict[str, list[dict[str, Any]]] = {}
        self.origins: dict[str, Provenance] = {}
        self.generation = 0
        self.closed = False
        self._prelude = prelude
        self._ids = itertools.count(1)
        self._keeper = LeaseHeartbeat(launcher.lease, max(0.5, min(_MAX_KEEP_S, launcher.grace_s / 4)))
        self.waiting = Waiting(lambda: self.channel.control.states(0.5), show=progress)
        self.feed = Feed(lambda: self.channel)
        self.exports: list[MetricsExport] = []
        self.turns = RequestQueue()
        self._later = Later()
        self._here = threading.local()

    def start(self) -> None:
        """Start the engines and check them; on failure nothing is left behind.

        Raises
        ------
        ClusterStartError
            With the launcher's output.
        """
        self._keeper.start()
        try:
            self._allocate()
            with self._starting() as say:
                self.launcher.reach_hosts()
                self.client = self.launcher.start(say)
                self._join()
                self._keep_profile()
                self._run_prelude()
        except BaseException:
            self.close()
            raise

    def attach(self) -> None:
        """Become the owner of engines that run already; on failure they are left as they are.

        Raises
        ------
        ClusterError
            If the ranks do not become idle.
        ClusterDegraded
            If a rank is gone.
        """
        lease = self.launcher.lease
        before = lease.owner()
        self._keeper.start()
        try:
            self.client = self.launcher.connect()
            self.launcher.take_hosts()
            self._await_ranks()
            last_id = self._join()
            self.config, self.profile_hz = self._started_with, self._profiled_at
        except BaseException:
            self.detach()
            if before is not None:
                lease.give_to(before)  # another process may try, and nobody's engines end in time
            raise
        # Names that the notebook before gave to tables are not used again.
        self._ids = itertools.count(last_id + 1)

    def restart(self, n: int | None = None) -> None:
        """End all engines, start new ones with the ceiling of the start, give them the config of now, run the prelude.

        There are `n` new ones, by default as many as before.

        Where they do not take the config, as with a limit above what is free by now, a warning says what is lost.
        """
        self.check_open()
        self._allocate()
        with self._starting() as say:
            self._restart(n, say)

    def _restart(self, n: int | None, say: Say) -> None:
        self.launcher.reach_hosts(n)  # where that fails, all stays as it is
        self.channel.close(
            "A restart ended the engines that this was meant for.",
            "Run it again, and call restart() before where that did not end; lab.view is of the new engines.",
        )
        # Not under the lock: whoever holds it waits for engines that this ends.
        self.launcher.stop_engines(self.client)
        self.launcher.n = self.launcher.n if n is None else n
        with self.channel.lock:
            if self.launcher.forgets_engines(self.client):
                self.launcher.start_engines(self.client, say)
            else:
                self.client.close()
                self.client = self.launcher.start(say)
            self.feed.forget()
            self._join()
            self._keep_profile()
            self._keep_config()
            self._run_prelude()

    @contextlib.contextmanager
    def _starting(self) -> Iterator[Say]:
        """Show from the beginning what a start waits for, and in the end that the ranks are there."""
        line = ProgressLine(first_s=0.0)

        def say(text: str) -> None:
            if self.waiting.shows:
                line.show(Where(text, "start"))

        try:
            yield say
        except BaseException as error:
            line.end(error)
            raise
        line.end(done=f"{len(self.ranks)} rank{'s' * (len(self.ranks) != 1)} ready")

    def _allocate(self) -> None:
        line = ProgressLine()

        def say(text: str) -> None:
            if self.waiting.shows:
                line.show(Where(text, "job"))

        try:
            self.launcher.allocate(say)
        except BaseException as error:
            line.end(error)
            raise
        line.end()

    def detach(self) -> None:
        """Leave the engines running until a new owner comes, or the grace time is over."""
        self._leave()
        self.launcher.leave_hosts()
        if self.client is not None:
            self.client.close()

    def close(self) -> None:
        """End everything. Idempotent."""
        if self.closed:
            return
        self._leave()
        self.launcher.stop(self.client)
        if self.client is not None:
            self.client.close()

    def check_open(self) -> None:
        """Raise `ClusterError` if it was closed or left."""
        if self.closed:
            error = ClusterError(self._closed_as(), advice="Start one with gl.Cluster(n).")
            shown_folded(error)
            raise error

    def _closed_as(self) -> str:
        return f"The cluster {self.name!r} is closed."

    def new_id(self) -> str:
        """An id for a table that nothing on the engines has yet, nor ever had, and that no variable can have."""
        return f"#{next(self._ids)}"

    def call(
        self,
        request: Request,
        function: Callable[..., Any] | None = None,
        *,
        each: Sequence[Any] | None = None,
        timeout_s: float | None = None,
        pump: Callable[[float], bool] | None = None,
    ) -> list[Reply]:
        """Run a request on all ranks; return their replies in rank order. See `Channel.call`."""
        self.check_open()
        if getattr(self._here, "pumps", False):
            raise ClusterError(
                f"{request.action} cannot run while the ranks wait here for rows: what makes the rows uses the cluster "
                "that takes them.",
                advice="Compute what it needs before, or with another cluster.",
            )
        if modules := modules_named(function):
            request = replace(request, modules=modules)
        self.turns.wait()
        if self._is_unwanted():
            raise Revoked(f"{request.action} was cancelled before it was sent.")
        self.waiting.begin()
        try:
            with self.turns.lock:  # a restart puts another channel in the place of this one
                replies = self.channel.call(
                    request, function, each=each, timeout_s=timeout_s, pump=None if pump is None else self._alone(pump)
                )
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                tell(error, not_sent(request.action))
            self.waiting.done(error)
            if function is not None:
                advise_names(error)
            if isinstance(error, GcylonError) and not hasattr(error, "_render_traceback_"):
                shown_folded(error)  # what no rank raised, such as that one is gone
            raise
        self.waiting.done()
        self.origins.update((one.result, provenance_of(one)) for one in request.before)
        return replies

    def make(
        self,
        request: Request,
        handle: Callable[[str, list[Reply]], H],
        function: Callable[..., Any] | None = None,
        *,
        each: Sequence[Any] | None = None,
        timeout_s: float | None = None,
        pump: Callable[[float], bool] | None = None,
    ) -> H:
        """Run a request whose table stays on the ranks, and make its handle; where anything cuts that short, they
        drop the table with the next request.

        Parameters
        ----------
        request : Request
            Without a result: that is named here.
        handle : callable
            Makes the handle of the result's name and the ranks' replies.
        function, each, timeout_s, pump
            As for `call`.
        """
        self.check_open()
        self.turns.wait()
        with self.turns.lock:  # nobody's next request comes between the replies and the handle
            request = replace(request, result=self.new_id())
            replies = self.call(request, function, each=each, timeout_s=timeout_s, pump=pump)
            made = handle(request.result, replies)
            self.origins[request.result] = provenance_of(request)
            self.channel.claim(request.result)
            return made

    def _alone(self, pump: Callable[[float], bool]) -> Callable[[float], bool]:
        def pumped(timeout_s: float) -> bool:
            with self.alone():
                return pump(timeout_s)

        return pumped

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, this thread sends no request: the ranks are busy with the one that waits for it."""
        self._here.pumps = True
        try:
            yield
        finally:
            self._here.pumps = False

    def row_end(self) -> NotebookEnd:
        """An end for rows that one request moves between here and the ranks."""
        return NotebookEnd(self.launcher.home, self.launcher.n, self.launcher.address)

    def later(self, what: str, function: Callable[[], T]) -> VerbFuture[T]:
        """Let a function that makes requests run after all that was asked for before.

        Parameters
        ----------
        what : str
            In words.
        function : callable
        """
        self.check_open()
        future: VerbFuture[T] | None = None
        try:
            with undisturbed():  # what is asked for and has no future yet could not be cancelled
                future = self._later.put(lambda: VerbFuture(self, what, function))
        except KeyboardInterrupt as error:
            if future is not None:
                future.cancel()
            tell(error, not_sent(what))
            raise
        return future

    @contextlib.contextmanager
    def on_behalf_of(self, future: VerbFuture[Any]) -> Iterator[None]:
        """Inside, this thread's requests are a future's: shown where it is awaited, and cancelled with it."""
        self.waiting.hide_here()
        self._here.future = future
        try:
            yield
        finally:
            self._here.future = None

    @property
    def is_later(self) -> bool:
        """Whether this thread is at work on a future."""
        return getattr(self._here, "future", None) is not None

    def _is_unwanted(self) -> bool:
        return self.is_later and bool(self._here.future.cancelled())

    def drop_later(self, table: str) -> None:
        """Forget a table on the engines with the next request; safe in finalizers."""
        self.channel.drop_later(table)
        self.infos.pop(table, None)
        self.origins.pop(table, None)

    def drop(self, table: str) -> None:
        """Forget a table on the engines: now if they are free, else with the next request."""
        self.drop_later(table)
        self.refresh()

    def is_well(self) -> bool:
        """Whether verbs can run: it is open, and no rank is lost or stuck."""
        if self.closed:
            return False
        try:
            self.channel.check_usable()
        except GcylonError:
            return False
        return True

    def refresh(self) -> None:
        """Learn what the ranks hold where it may have changed since they last told; never waits for other work."""
        if self.closed or not self.channel.has_news or self.turns.anybody_waits:
            return
        if not self.channel.lock.acquire(blocking=False):
            return
        try:
            if not self.channel.is_busy():
                with contextlib.suppress(GcylonError):
                    self.call(Request("nothing"))
        finally:
            self.channel.lock.release()

    def set_config(self, config: GcylonConfig) -> None:
        """Let the next operation use another config; never waits for a running one."""
        self._settle(config=config)

    def set_profile(self, hz: float) -> None:
        """Let the ranks record spans and memory at another rate, or not at all (0); never waits for a running one."""
        self._settle(profile_hz=hz)

    def _settle(self, config: GcylonConfig | None = None, profile_hz: float | None = None) -> None:
        """Tell the ranks both: one question of them all is unsettled at most."""
        self.check_open()
        self.channel.check_usable()
        with self.channel.settling:
            before = _ask_settings(self.config, self.profile_hz)
            config = self.config if config is None else config
            profile_hz = self.profile_hz if profile_hz is None else profile_hz
            try:
                self.channel.settle(_ask_settings(config, profile_hz), _CONFIG_TRIES)
                self.config, self.profile_hz = config, profile_hz
            except GcylonError:
                # Where one rank does not take it, none keeps it.
                with contextlib.suppress(GcylonError):
                    self.channel.settle(before, each_s=1.0)
                raise
            except KeyboardInterrupt:
                self.channel.unsettled = before  # told with the next request
                raise

    # --- inside ---

    def _learn(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if reply.memory:
                self.memory[reply.rank] = reply.memory
            for name, places in reply.moved.items():
                infos = self.infos.get(name)
                if infos is not None:
                    infos[reply.rank] |= places

    def _join(self) -> int:
        """Check that the engines are one world, and make the way to them; return the last table's number."""
        engines = sorted(self.client.ids)
        identities = self._identities(engines)
        now = time.monotonic()
        check_complete(identities, self.launcher.n, lambda rank: self._exit_of(rank, now))
        self.ranks = check_identities(identities, engines, self.launcher.n, self.launcher.mpi.describe())
        in_order = sorted(identities, key=lambda answer: int(answer["rank"]))
        self._started_with = GcylonConfig(**in_order[0]["config"])
        self._profiled_at = float(in_order[0]["profile_hz"])
        self.memory = [answer["memory"] for answer in in_order]
        self.channel = self._new_channel([record.engine_id for record in self.ranks])
        self.channel.on_wait = self.waiting.tick
        self.channel.on_replies = self._learn
        self.channel.is_unwanted = self._is_unwanted
        self.channel.needs_recovery = any(answer["revoked"] for answer in identities)
        self.generation += 1
        self.infos.clear()
        self.origins.clear()
        self._check_collective()
        self.launcher.watch_hosts(self._lose_host)
        state = self.launcher.state() | {"name": self.name, "started": time.time(), "prelude": self._prelude}
        runtime_dirs.write_state(self.launcher.home, state)
        activate(self.channel.view)
        return max(int(answer["last_id"]) for answer in identities)

    def _keep_profile(self) -> None:
        if self.profile_hz != self._profiled_at:
            with self.channel.settling:
                self.channel.settle(_ask_settings(self._started_with, self.profile_hz), _CONFIG_TRIES)

    def _keep_config(self) -> None:
        """Give new engines the config that was set before, as far as they take it."""
        wanted, started = self.config, self._started_with
        if wanted == started:
            return
        try:
            self.set_config(wanted)
            return
        except GcylonError as error:
            said, self.config = str(error), started
        fields = [name for name, value in wanted.as_dict().items() if value != getattr(started, name)]
        limit = "gpu_memory_limit"
        with contextlib.suppress(GcylonError):
            self.set_config(wanted.with_values(**{limit: started.gpu_memory_limit}))
            fields = [limit]
        warn(
            f"The new ranks have not taken {', '.join(fields)} from before the restart: as at the start, "
            f"{', '.join(f'{name}={getattr(started, name)!r}' for name in fields)}. {said}"
        )

    def _await_ranks(self) -> None:
        """What the notebook before had asked for comes first on the ranks' main channel."""
        engines = sorted(self.client.ids)
        channel = self._new_channel(engines)
        try:
            wait_until_idle(
                lambda each: channel.control.ask_each(each, 1.0), len(engines), self.launcher.start_timeout_s,
                # A rank that was killed a moment ago may still have been among them.
                has_fewer=lambda: not set(engines) <= set(self.client.ids),
            )  # fmt: skip
        except KeyboardInterrupt:
            channel.interrupt()
            raise
        finally:
            channel.close("The ranks were only waited for.", "")

    def _new_channel(self, engines: Sequence[int]) -> Channel:
        return Channel(
            self.client,
            engines,
            describe_losses=self._describe_losses,
            is_cut_off=lambda: not self.launcher.has_controller(),
            stops=self.launcher.stop_detector(self.client, self.ranks),
            revocable=self.launcher.mpi.revocable,
            turns=self.turns,
        )

    def _identities(self, engines: Sequence[int]) -> list[dict[str, Any]]:
        view = self.client.direct_view(list(engines))
        timeout_s = self.launcher.start_timeout_s
        errors = view.apply_async(ask, "start_error").get(timeout_s)
        failed = {engine: text for engine, text in zip(engines, errors, strict=True) if text}
        if failed:
            engine, text = next(iter(failed.items()))
            raise ClusterStartError(
                f"{len(failed)} of {len(engines)} engines did not start; engine {engine} says:\n{text}"
            )
        answers: list[dict[str, Any]] = view.apply_async(ask, "identity").get(timeout_s)
        return answers

    def _check_collective(self) -> None:
        replies = self.channel.call(Request("check"), timeout_s=self.launcher.start_timeout_s)
        wrong = [reply.rank for reply in replies if reply.value != list(range(self.launcher.n))]
        if wrong:
            said = replies[wrong[0]].value
            raise ClusterStartError(f"A collective gave a wrong answer on {name_ranks(wrong)}: {said}.")

    def _run_prelude(self) -> None:
        if self._prelude:
            self.channel.view.execute(self._prelude, block=True)

    def _lose_host(self, hostname: str) -> None:
        self.channel.lose([record.rank for record in self.ranks if record.host == hostname])

    def _describe_losses(self, ranks: Sequence[int]) -> str:
        """What became of ranks that are gone: one sentence each, and one for all that were lost for one reason."""
        by_reason: dict[str, list[RankRecord]] = {}
        said = []
        for rank in ranks:
            if why := self.launcher.why_lost(self.ranks[rank].host):
                by_reason.setdefault(why, []).append(self.ranks[rank])
                continue
            # A new channel has none, and the one before may ask.
            how = self._exit_of(rank, self.channel.lost.get(rank, 0.0)) or "its launcher does not say how it ended"
            said.append(f"The process of {self.ranks[rank].describe()} is gone: {how}.")
        return " ".join([describe_lost_hosts(records, why) for why, records in by_reason.items()] + said)

    def _exit_of(self, rank: int, known_at: float) -> str:
        """How a rank ended, which its launcher may say a moment after it is known that it did; "" where it does not."""
        while not (how := self.launcher.exit_of(rank)) and time.monotonic() - known_at < _LAST_WORDS_S:
            time.sleep(0.02)
        return how

    def _leave(self) -> None:
        exports, self.exports = self.exports, []
        for export in exports:
            with contextlib.suppress(Exception):  # what it sends to may be gone
                export.close()
        self.closed = True
        self._keeper.stop()
        self.feed.close()
        if self.generation:
            self.channel.close(self._closed_as(), "Start one with gl.Cluster(n).")


def _ask_settings(config: GcylonConfig, profile_hz: float) -> dict[str, Any]:
    return {"ask": "config", "config": config.as_dict(), "profile_hz": profile_hz}

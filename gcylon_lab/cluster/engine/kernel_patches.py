"""Where an engine's kernel is changed: interrupts, failures of cells, and the control channel."""

from __future__ import annotations

import sys
import traceback
from typing import Any, Protocol

from ipykernel.iostream import OutStream
from jupyter_client.session import DELIM

from ...config import GcylonConfig
from ...errors import GcylonError, to_message
from ..messages import CONTROL_REPLY, CONTROL_REQUEST, WITHOUT_STATUS
from ..tracebacks import shorten, shown_folded
from .signal_thread import InterruptGuard, SignalThread


class Hooked(Protocol):
    """An engine, as its kernel sees it."""

    context: Any
    running: str
    guard: InterruptGuard

    @property
    def rank(self) -> int:
        """Its MPI rank."""
        ...

    def begin(self, what: str) -> None:
        """A request of the shell channel begins."""
        ...

    def failed(self, error: BaseException | None) -> None:
        """A cell or a request ended in an error."""
        ...

    def forget_frames(self, error: BaseException | None) -> None:
        """Let go of what the frames of an error hold."""
        ...

    def interrupted(self) -> None:
        """Leave the operation that this rank is in."""
        ...

    def free(self, why: str, advice: str) -> None:
        """The same, with an error that says why."""
        ...

    def state(self) -> dict[str, Any]:
        """What it does now."""
        ...


def install_hooks(engine: Hooked, kernel: Any, watcher: SignalThread) -> None:
    """Let a kernel's cells and calls free the peers when they fail, and let it answer on the control channel."""
    # The guard holds SIGINT for good; the kernel must not swap handlers around each message.
    kernel.pre_handler_hook = _nothing
    kernel.post_handler_hook = _nothing
    _wrap_showtraceback(engine, kernel.shell)
    _wrap_apply(engine, kernel)
    _wrap_execute(engine, kernel)
    handle = _control_handler(engine, kernel, watcher)
    kernel.control_handlers[CONTROL_REQUEST] = handle
    _wrap_control(kernel, handle)
    _wrap_status(kernel)
    _wrap_flush()
    _leave_unheard(kernel.log)


def _nothing() -> None:
    pass


def _wrap_showtraceback(engine: Hooked, shell: Any) -> None:
    original = shell.showtraceback

    def showtraceback(exc_tuple: Any = None, *args: Any, **kwargs: Any) -> Any:
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        # Making a traceback for people can take a second: the peers do not wait for that.
        engine.failed(error)
        if isinstance(error, KeyboardInterrupt) and engine.running == "call":
            # Nobody reads it; of an interrupted import it takes seconds, in which this rank seems to be stuck.
            shell._last_traceback = traceback.format_exception_only(error)
            return None
        shorten(error)
        if isinstance(error, GcylonError):
            shown_folded(error)
        return original(exc_tuple, *args, **kwargs)

    shell.showtraceback = showtraceback


def _ended(engine: Hooked, content: Any) -> None:
    if content["status"] == "error":
        engine.failed(_last_error(content))
        engine.forget_frames(_last_error(content))
    engine.running = ""


def _wrap_apply(engine: Hooked, kernel: Any) -> None:
    original = kernel.do_apply

    def do_apply(*args: Any, **kwargs: Any) -> Any:
        engine.begin("call")
        try:
            with engine.guard.armed():
                content, buffers = original(*args, **kwargs)
        except KeyboardInterrupt:
            content, buffers = _interrupted(kernel, "apply"), []
        _ended(engine, content)
        return content, buffers

    kernel.do_apply = do_apply


def _wrap_execute(engine: Hooked, kernel: Any) -> None:
    original = kernel.do_execute

    async def do_execute(*args: Any, **kwargs: Any) -> Any:
        engine.begin("cell")
        try:
            with engine.guard.armed():
                content = await original(*args, **kwargs)
        except KeyboardInterrupt:
            content = _interrupted(kernel, "execute")
        _ended(engine, content)
        return content

    kernel.do_execute = do_execute


def _last_error(content: dict[str, Any]) -> BaseException | None:
    """The exception behind a reply, as far as IPython still has it."""
    error = getattr(sys, "last_value", None)
    return error if error is not None and type(error).__name__ == content.get("ename") else None


def _interrupted(kernel: Any, method: str) -> dict[str, Any]:
    """The reply to a request that an interrupt cut short after its own handling of errors."""
    return {
        "status": "error",
        "ename": "KeyboardInterrupt",
        "evalue": "",
        "traceback": [],
        "execution_count": kernel.execution_count,
        "user_expressions": {},
        "payload": [],
        "engine_info": kernel.get_engine_info(method=method),
    }


def _wrap_control(kernel: Any, handle: Any) -> None:
    """Answer our own control requests at once, without telling all clients that each begins and ends.

    Around each control request ipykernel publishes two statuses and flushes two streams, all of it in another thread
    that is woken for it, which took as long as the answer. Where an ipykernel dispatches in another way, or has begun
    to, our handler serves as all others do.
    """
    original, stream = kernel.dispatch_control, kernel.control_stream

    def dispatch_control(message: Any) -> Any:
        if not _is_ours(kernel.session, message):
            return original(message)
        try:
            idents, parts = kernel.session.feed_identities(message, copy=False)
            # Straight to the socket: the stream would send in another turn of its loop. It looks for events after this,
            # unless an error gets out of here.
            handle(stream.socket, idents, kernel.session.deserialize(parts, copy=False))
        except Exception:
            kernel.log.exception("A control request cannot be read, or its answer cannot be sent.")
        return None

    kernel.dispatch_control = dispatch_control


def _wrap_status(kernel: Any) -> None:
    """Publish no status of calls that say so by their label: to tell each client that one begins and ends takes longer
    than many of them. Where an ipykernel publishes in another way, clients hear of these as of all others."""
    original = getattr(kernel, "_publish_status", None)
    if original is None:
        return

    def publish_status(status: str, channel: str, parent: Any = None) -> None:
        about = parent or kernel.get_parent(channel) or {}
        if channel != "shell" or about.get("metadata", {}).get("label") != WITHOUT_STATUS:
            original(status, channel, parent)

    kernel._publish_status = publish_status


def _wrap_flush() -> None:
    """Flush the output of kernels only where something was written: each flush waits for another thread, and there are
    four around each call. Of the class, as its streams come once the engine has begun."""
    stream: Any = OutStream
    write, flush = stream.write, stream.flush

    def write_and_note(self: Any, text: str) -> Any:
        written = write(self, text)
        self._is_written = True  # not before: a flush in between would leave the text
        return written

    def flush_what_was_written(self: Any) -> None:
        if getattr(self, "_is_written", True):
            self._is_written = False
            flush(self)

    stream.write, stream.flush = write_and_note, flush_what_was_written


def _leave_unheard(log: Any) -> None:
    """Make no messages of a log that all of its handlers leave out: there are four around each call."""
    levels = [handler.level for handler in getattr(log, "handlers", ())]
    if levels and not log.propagate:
        log.setLevel(max(log.level, min(levels)))


def _is_ours(session: Any, message: Any) -> bool:
    """Whether the header, after the route, the delimiter and the signature, is that of a control request of ours."""
    try:
        route = next(place for place, frame in enumerate(message) if frame.bytes == DELIM)
        return bool(session.unpack(message[route + 2].bytes)["msg_type"] == CONTROL_REQUEST)
    except (StopIteration, ValueError, LookupError, TypeError):
        return False


def _control_handler(engine: Hooked, kernel: Any, watcher: SignalThread) -> Any:
    def handle(stream: Any, idents: Any, message: dict[str, Any]) -> None:
        try:
            content = {"status": "ok", "reply": _answer(engine, message["content"], watcher)}
        except Exception as error:
            content = {"status": "failed", "error": to_message(error, engine.rank)}
        kernel.session.send(stream, CONTROL_REPLY, content, parent=message, ident=idents)

    return handle


def _answer(engine: Hooked, content: dict[str, Any], watcher: SignalThread) -> dict[str, Any]:
    """Answer in the control thread, while the main thread may be anywhere."""
    if content["ask"] == "snapshot":
        told = {name: content[name] for name in ("since_ns", "max_bytes", "oldest") if name in content}
        snapshot: dict[str, Any] = engine.context.snapshot(**told)
        return snapshot | {"state": engine.state()}
    if content["ask"] == "messages":
        messages: dict[str, Any] = engine.context.posts.as_dict(content["topic"])
        return messages
    if content["ask"] == "revoke":
        engine.interrupted()
    if content["ask"] == "free":
        engine.free(content["why"], content["advice"])
    if content["ask"] == "settle":
        watcher.settle()
    if content["ask"] == "config":
        engine.context.set_config(GcylonConfig(**content["config"]))
        engine.context.set_profile(content["profile_hz"] or False)
    return engine.state()

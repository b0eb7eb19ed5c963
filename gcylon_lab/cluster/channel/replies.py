"""Replies of engines where ipyparallel would leave who waits for them without an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ipyparallel import error as ipp

from ...errors import RankError
from ..messages import WITHOUT_STATUS

_KINDS = ("apply_reply", "execute_reply")


class Replies:
    """A client's replies: those of engines that are stopped are given up, and those that cannot be read are errors.

    Parameters
    ----------
    client : ipyparallel.Client
        Whose handlers of replies are wrapped, once.
    engine_ids : sequence of int
        In the order of their ranks.
    """

    def __init__(self, client: Any, engine_ids: Sequence[int]) -> None:
        self._client = client
        self._engine_ids = engine_ids
        self._given_up: set[str] = set()
        for kind in _KINDS:
            # A client outlives a channel: what an earlier one wrapped is taken off.
            handle = client._queue_handlers[kind]
            client._queue_handlers[kind] = partial(self._handle, getattr(handle, "args", (handle,))[0])

    def give_up(self, message_ids: Sequence[str], engines: Sequence[int], error: Exception) -> None:
        """Let those of some messages that engines have not answered end in an error; from any thread."""
        self._client._io_loop.add_callback(self._answer, set(message_ids), tuple(engines), error)

    def _answer(self, message_ids: set[str], engines: Sequence[int], error: Exception) -> None:
        client = self._client
        for engine in engines:
            uuid = client._engines.get(engine)
            for message_id in list(message_ids & client._outstanding_dict[uuid] - set(client.results)):
                self._given_up.add(message_id)
                # As ipyparallel does for an engine that died.
                message = client.session.msg("apply_reply", content=_content(error, engine, uuid))
                message["parent_header"]["msg_id"] = message_id
                message["metadata"]["engine"] = uuid
                client._handle_apply_reply(message)
                self._expect_no_output(message_id)

    def _expect_no_output(self, message_id: str) -> None:
        """No status will say that the output of a message is complete."""
        output = self._client._output_futures.get(message_id)
        if output is not None and not output.done():
            output.set_result(None)

    def _handle(self, handle: Callable[[Any], None], message: Any) -> None:
        message_id = message["parent_header"].get("msg_id")
        if message_id in self._given_up:
            self._given_up.discard(message_id)
            return
        try:
            handle(message)
            if message["metadata"].get("label") == WITHOUT_STATUS:
                self._expect_no_output(message_id)
        except Exception as error:  # its value: ipyparallel would log this, and its future stay open for ever
            self._end(message_id, error)

    def _end(self, message_id: str, error: Exception) -> None:
        client = self._client
        future = client._futures.get(message_id)
        if future is None or future.done():
            raise error
        engine, uuid = (client.metadata[message_id][name] for name in ("engine_id", "engine_uuid"))
        rank = self._engine_ids.index(engine) if engine in self._engine_ids else None
        unread = RankError(
            f"The value that was to come cannot be read in the notebook: {type(error).__name__}: {error}.",
            advice="Send what the notebook knows: plain values, or frames of pandas by to_pandas().",
            rank=rank,
        )
        client.results[message_id] = client._unwrap_exception(_content(unread, engine, uuid))
        future.set_result(client.results[message_id])


def _content(error: Exception, engine: int, uuid: str) -> dict[str, Any]:
    try:
        raise error
    except Exception:
        content: dict[str, Any] = ipp.wrap_exception({"engine_id": engine, "engine_uuid": uuid, "method": "execute"})
    content["traceback"] = [f"{type(error).__name__}: {error}"]  # where it was raised here says nothing
    return content

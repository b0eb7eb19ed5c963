"""Answers in the place of engines that are stopped, to who waits for their cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ipyparallel import error as ipp

_REPLIES = ("apply_reply", "execute_reply")


class GivenUp:
    """Messages that nobody waits for any more, though their engines may answer yet.

    Parameters
    ----------
    client : ipyparallel.Client
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._ids: set[str] = set()
        for kind in _REPLIES:
            client._queue_handlers[kind] = partial(self._swallow, client._queue_handlers[kind])

    @classmethod
    def of(cls, client: Any) -> GivenUp:
        """That of a client, which has one."""
        if not hasattr(client, "_gcylon_given_up"):
            client._gcylon_given_up = cls(client)
        found: GivenUp = client._gcylon_given_up
        return found

    def give_up(self, message_ids: Sequence[str], engines: Sequence[int], error: Exception) -> None:
        """Let those of some messages that engines have not answered end in an error; from any thread."""
        self._client._io_loop.add_callback(self._answer, set(message_ids), tuple(engines), error)

    def _answer(self, message_ids: set[str], engines: Sequence[int], error: Exception) -> None:
        client = self._client
        for engine in engines:
            uuid = client._engines.get(engine)
            for message_id in list(message_ids & client._outstanding_dict[uuid] - set(client.results)):
                self._ids.add(message_id)
                # As ipyparallel does for an engine that died.
                message = client.session.msg("apply_reply", content=_content(error, engine, uuid))
                message["parent_header"]["msg_id"] = message_id
                message["metadata"]["engine"] = uuid
                client._handle_apply_reply(message)
                output = client._output_futures.get(message_id)
                if output is not None and not output.done():
                    output.set_result(None)

    def _swallow(self, handle: Callable[[Any], None], message: Any) -> None:
        message_id = message["parent_header"].get("msg_id")
        if message_id in self._ids:
            self._ids.discard(message_id)
        else:
            handle(message)


def _content(error: Exception, engine: int, uuid: str) -> dict[str, Any]:
    try:
        raise error
    except Exception:
        content: dict[str, Any] = ipp.wrap_exception({"engine_id": engine, "engine_uuid": uuid, "method": "execute"})
    content["traceback"] = [f"{type(error).__name__}: {error}"]  # where it was raised here says nothing
    return content

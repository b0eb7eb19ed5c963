"""Ports for servers that are told theirs."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port that nobody has, below those that the system gives to whoever asks for any.

    (Of those another test's cluster may be given this one before the server has it.)
    """
    for port in random.SystemRandom().sample(range(12_000, 32_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("Of a hundred ports none is free.")

"""Which cluster a magic means, and starting and ending it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from IPython.core.magic_arguments import MagicArgumentParser

from ...cluster.client.cluster import Cluster
from ...config import GcylonConfig
from .settings import changed, taken_back
from .shown import refuse, show

DEFAULT_NAME = "lab"
UP_OPTIONS = ("--name", "--mpi", "--grace", "--prelude", "--timeout", "--attach")


def _up_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = MagicArgumentParser("%lab up", add_help=False)  # type: ignore[no-untyped-call]
    parser.add_argument("words", nargs="*", metavar="N name=value", help="ranks, and settings such as 64MiB")
    parser.add_argument("--name", default=DEFAULT_NAME, help="variable to put the cluster into")
    parser.add_argument("--mpi", default="auto", help="auto, openmpi, mpich, or the path of an mpiexec")
    parser.add_argument("--grace", type=float, default=60.0, help="seconds that the engines outlive the kernel")
    parser.add_argument("--prelude", type=Path, help="file of Python that every engine runs at start")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds to wait for the engines")
    parser.add_argument("--attach", action="store_true", help="take over engines whose kernel is gone")
    return parser


class Clusters:
    """The clusters of a shell's namespace.

    Parameters
    ----------
    shell : InteractiveShell
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._latest = DEFAULT_NAME

    @property
    def namespace(self) -> dict[str, Any]:
        """The user's variables."""
        space: dict[str, Any] = self._shell.user_ns
        return space

    def up(self, words: Sequence[str]) -> Cluster:
        """Start a cluster and put it into the namespace; one that is there under the name is used."""
        options = _up_parser().parse_args(list(words))
        n, settings = _ranks(options.words), [word for word in options.words if not word.isdigit()]
        name = options.name
        if not name.isidentifier():
            raise refuse(f"%lab up --name {name}: that cannot be a variable's name.")
        there = self.namespace.get(name)
        if there is not None and not isinstance(there, Cluster):
            raise refuse(f"{name} is a {type(there).__name__} already. Give the cluster another name with --name.")
        self._latest = name
        if there is not None and is_open(there):
            return self._used(name, there, n, settings)
        self.namespace[name] = cluster = _started(name, n, settings, options)
        return cluster

    def down(self, words: Sequence[str]) -> None:
        """Close a cluster; its variable goes."""
        name, cluster = self.named(words)
        tables = len(cluster._session.infos)
        cluster.close()
        if self.namespace.get(name) is cluster:
            del self.namespace[name]
        print(f"Closed {name}" + (f", and with it {tables} table{'s' * (tables != 1)}." if tables else "."))

    def named(self, words: Sequence[str] = ()) -> tuple[str, Cluster]:
        """The cluster that is meant: one that is named, the one of ``%lab up``, or the only one there is.

        Raises
        ------
        UsageError
            If there is none, or which of several is meant cannot be told.
        """
        if words:
            return words[0], self._open_cluster(words[0])
        if is_open(self.namespace.get(self._latest)):
            return self._latest, self.namespace[self._latest]
        found = {name: value for name, value in self.namespace.items() if is_open(value) and not name.startswith("_")}
        if len({id(cluster) for cluster in found.values()}) == 1:
            return next(iter(found.items()))
        if found:
            raise refuse(f"There are several clusters: name one of {', '.join(sorted(found))}.")
        raise refuse("There is no cluster. Start one, for example of 2 ranks: %lab up 2")

    def is_there(self) -> bool:
        """Whether `named` would give one."""
        return any(is_open(value) for value in self.namespace.values())

    def _open_cluster(self, name: str) -> Cluster:
        value = self.namespace.get(name)
        if isinstance(value, Cluster) and is_open(value):
            return value
        what = "is closed" if isinstance(value, Cluster) else "is not a cluster"
        raise refuse(f"{name} {what}. Start one with %lab up 2" + f" --name {name}." * (name != DEFAULT_NAME))

    def _used(self, name: str, cluster: Cluster, n: int | None, settings: Sequence[str]) -> Cluster:
        if n is not None and n != cluster.n:
            raise refuse(f"{name} has {cluster.n} ranks, not {n}. Close it with %lab down first, or give --name.")
        if settings:
            before = cluster.config
            cluster.config = changed(before, settings)
            if gone := taken_back(before, settings):
                print(gone)
        print(f"{name} is there already, and is used.")
        return cluster


def is_open(value: Any) -> bool:
    """Whether a value is a cluster that has not been closed."""
    return isinstance(value, Cluster) and not value._session.closed


def _ranks(words: Sequence[str]) -> int | None:
    numbers = [int(word) for word in words if word.isdigit()]
    if len(numbers) > 1:
        raise refuse(f"%lab up takes one number of ranks, but was given {' and '.join(map(str, numbers))}.")
    return numbers[0] if numbers else None


def _started(name: str, n: int | None, settings: Sequence[str], options: argparse.Namespace) -> Cluster:
    # A cluster of another variable is another one, also for `attach`.
    known_as = "default" if name == DEFAULT_NAME else name
    if options.attach:
        return Cluster.attach(known_as)
    config = changed(GcylonConfig.from_environment(), settings)  # what is wrong is said before engines start
    return Cluster(
        n,
        config=config,
        mpi=options.mpi,
        grace_s=options.grace,
        prelude=options.prelude,
        name=known_as,
        start_timeout_s=options.timeout,
    )


def show_cluster(cluster: Cluster) -> None:
    """The cluster's card, or its line in a terminal."""
    show(cluster)

"""A notebook's process, apart from the one that runs the tests."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import psutil


class Apart:
    """Process numbers of their own for notebooks, which see none of those of other hosts; until `end`."""

    def __init__(self) -> None:
        apart = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        reaps = "while true; do sleep 1; done"
        self._process = subprocess.Popen([*apart, "bash", "-c", reaps])
        while not (children := psutil.Process(self._process.pid).children()):
            time.sleep(0.01)
        # What it runs ends with who runs it.
        self.enter = ["nsenter", "-t", str(children[0].pid), "-p", "-m", "setpriv", "--pdeathsig", "KILL"]

    def end(self) -> None:
        """End all that runs there."""
        self._process.kill()
        self._process.wait()


class Notebook:
    """Calls functions of test modules in one process. Used in a ``with`` block.

    Parameters
    ----------
    environment : dict
        Beside this process's own.
    prefix : sequence of str
        A command that runs another.
    """

    def __init__(self, environment: dict[str, str], prefix: Sequence[str] = ()) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*prefix, sys.executable, __file__], stdin=pipe, stdout=pipe, env=os.environ | environment
        )

    def __enter__(self) -> Notebook:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of a test module there; what it raises is raised here, as text."""
        assert self._process.stdin is not None and self._process.stdout is not None
        file = sys.modules[function.__module__].__file__
        pickle.dump((str(file), function.__name__, args), self._process.stdin)
        self._process.stdin.flush()
        error, value = pickle.load(self._process.stdout)
        assert not error, error
        return value

    def kill(self) -> None:
        """End it as a kernel that crashes does."""
        self._process.kill()
        self._process.wait()


def main(asked: BinaryIO, answers: BinaryIO) -> None:
    """Call what is asked for, until nobody asks."""
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.instance()
    while True:
        try:
            file, name, args = pickle.load(asked)
        except EOFError:
            return
        try:
            sys.path[:0] = [str(Path(file).parent)] if str(Path(file).parent) not in sys.path else []
            answer = "", getattr(importlib.import_module(Path(file).stem), name)(*args)
        except BaseException:
            answer = traceback.format_exc(), None
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is none of the answers
    main(sys.stdin.buffer, own)

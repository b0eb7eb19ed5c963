"""Who else may use this host, and how the messages of a cluster are protected."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

import psutil

from ...config import SECURITY_VARIABLE
from ...errors import ArgumentError

AUTO, ENCRYPTED, SIGNED = SECURITIES = ("auto", "encrypted", "signed")

# Accounts of people begin here; those below are the system's, as is the last, "nobody".
_FIRST_PERSON = 500 if sys.platform == "darwin" else 1000
_NOBODY = (65534, 2**32 - 2)
_NO_LOGIN = ("nologin", "false", "sync")
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Security:
    """How the messages between the notebook, the controller and the engines are protected.

    Attributes
    ----------
    encrypted : bool
        By CurveZMQ, beside the signatures that all have.
    why : str
        "because security='encrypted'"; "" where nobody asked.
    over : str
        What they go over.
    """

    encrypted: bool
    why: str
    over: str = "Unix sockets that no other user can open"

    def describe(self) -> str:
        """For people: "messages go over Unix sockets that no other user can open, encrypted because ..."."""
        how = f", {ENCRYPTED if self.encrypted else SIGNED} {self.why}" if self.why else ""
        return f"messages go over {self.over}{how}"


def choose_security(asked: str = AUTO) -> Security:
    """Say how the messages of a new cluster are protected.

    Parameters
    ----------
    asked : {"auto", "encrypted", "signed"}
        "auto" takes what ``GCYLON_SECURITY`` says, and without it "signed".

    Raises
    ------
    ArgumentError
        If it is none of these.
    """
    by = f"security={asked!r}"
    if asked == AUTO:
        asked = os.environ.get(SECURITY_VARIABLE) or AUTO
        by = f"{SECURITY_VARIABLE}={asked}"
    if asked not in SECURITIES:
        raise ArgumentError(f"{by} is invalid. Expected 'auto', 'encrypted' or 'signed'.")
    return Security(asked == ENCRYPTED, "" if asked == AUTO else f"because {by}")


def security_over_hosts(asked: str = AUTO) -> Security:
    """As `choose_security`, for messages that leave this host: those are encrypted in any case.

    Raises
    ------
    ArgumentError
        If it is "signed", or none of the choices.
    """
    choose_security(asked)
    if (os.environ.get(SECURITY_VARIABLE) if asked == AUTO else asked) == SIGNED:
        raise ArgumentError(
            "security='signed' is for one host: messages to ranks on other hosts cross a network.",
            advice=f"Leave security= and {SECURITY_VARIABLE} away, or say 'encrypted'.",
        )
    return Security(True, "because ranks are on other hosts", "TCP")


def other_people() -> str:
    """Who else may use this host, in words; "" for nobody.

    Another person is an account that can log in, or the owner of a process, with a user number as people have
    (from 1000, on macOS from 500), and not this user. Where the processes of others are hidden, there may be some.
    """
    if not hasattr(os, "geteuid"):
        return "Windows does not say"
    if names := sorted(_accounts()):
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"account{'s' * (len(names) > 1)} {', '.join(names[:_MOST_NAMES])}{more}"
    owners = sorted(_owners())
    if owners:
        return f"processes of user {owners[0]}"
    if sys.platform == "linux" and 1 not in psutil.pids():
        return "the processes of others are hidden"
    return ""


def check_name(name: str) -> str:
    """Return a cluster's name if it is one: as that of a variable, since it names a folder too.

    Raises
    ------
    ArgumentError
        If it is not.
    """
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 64:
        shown = name if isinstance(name, str) and len(name) <= 64 else f"{str(name)[:60]}..."
        better = re.sub(r"\W", "_", str(name))[:64]
        advice = f"Take for example {better!r}." if better.isidentifier() else "Take for example 'analysis'."
        raise ArgumentError(
            f"{shown!r} cannot be a cluster's name, which is letters, digits and underscores, at most 64, and begins "
            "with no digit.",
            advice=advice,
        )
    return name


def _is_person(uid: int) -> bool:
    return uid >= _FIRST_PERSON and uid not in _NOBODY and uid not in (os.getuid(), os.geteuid())


def _accounts() -> set[str]:
    import pwd

    return {
        entry.pw_name
        for entry in pwd.getpwall()
        if _is_person(entry.pw_uid) and os.path.basename(entry.pw_shell) not in _NO_LOGIN
    }


def _owners() -> set[int]:
    uids = (process.info["uids"] for process in psutil.process_iter(["uids"]))
    return {uid.real for uid in uids if uid is not None and _is_person(uid.real)}

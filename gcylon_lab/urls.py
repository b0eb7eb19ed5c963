"""URLs as they are shown: without what lets others in."""

from __future__ import annotations

import re

# What stands before the host may be a password or a key, what stands behind "?", "#" or ";" a signature or a token.
_URL = re.compile(
    r"""(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)
    (?P<user>[^/\s'"@?#]*:[^\s'"?#]*@|[^/\s'"?#]*@)?  # a secret may hold slashes and the sign itself
    (?P<rest>[^\s'"?#;<>]*)
    (?P<more>[?#;][^\s'"<>]*)?""",
    re.VERBOSE,
)


def without_secrets(text: str) -> str:
    """A text with the user info, query and fragment of its URLs replaced by ``...``.

    Parameters
    ----------
    text : str
        A URL, or a text that holds some.

    Returns
    -------
    str
    """
    if "://" not in text:
        return text
    return _URL.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    user = "...@" if found["user"] else ""
    more = found["more"] or ""
    kept = more[0] + "..." + "".join(re.findall(r"[.,;:)\]]+$", more[1:])) if len(more) > 1 else more
    return f"{found['scheme']}{user}{found['rest']}{kept}"

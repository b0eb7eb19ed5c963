"""IPython magics: ``%load_ext gcylon_lab`` gives ``%lab``, ``%lab_plan`` and ``%%lab_profile``."""

from __future__ import annotations

from typing import Any


def load(shell: Any) -> None:
    """Register the magics and their completion in a shell; again does no harm."""
    from .completion import complete
    from .lab import LabMagics

    shell.register_magics(LabMagics(shell))
    _forget_completion(shell)
    shell.set_hook("complete_command", complete, str_key="%lab")


def unload(shell: Any) -> None:
    """Take the magics away; clusters go on."""
    for kind, names in {"line": ("lab", "lab_plan"), "cell": ("lab_profile",)}.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    _forget_completion(shell)


def _forget_completion(shell: Any) -> None:
    shell.strdispatchers["complete_command"].strs.pop("%lab", None)

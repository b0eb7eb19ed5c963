"""IPython magics: ``%load_ext gcylon_lab`` gives ``%lab``, ``%lab_plan`` and ``%%lab_profile``."""

from __future__ import annotations

from typing import Any


def load(shell: Any) -> None:
    """Register the magics and their completion in a shell; again does no harm."""
    from .completion import add_completion
    from .lab import LabMagics

    shell.register_magics(LabMagics(shell))
    add_completion(shell)


def unload(shell: Any) -> None:
    """Take the magics away; clusters go on."""
    from .completion import remove_completion

    for kind, names in {"line": ("lab", "lab_plan"), "cell": ("lab_profile",)}.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    remove_completion(shell)

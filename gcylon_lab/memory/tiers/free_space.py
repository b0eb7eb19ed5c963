"""How much the tiers below the device can still take, for results that are known to be large before they are made."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# What these hold takes as many bytes as were written. Others may compress it, or keep it where nobody here sees.
_PLAIN = ("ext2", "ext3", "ext4", "xfs", "tmpfs")
# Extents of 128 KiB that are compressed take a block of 4 KiB at the least.
_DENSEST = 32
UNKNOWN = 1 << 60


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """What is free below the device tier of one rank.

    Attributes
    ----------
    pinned_bytes : int
        Of page-locked memory.
    disk_bytes : int
        As the disk says.
    most_bytes : int
        That can be written to the disk at the most: more, where it may compress; `UNKNOWN` where it cannot be asked.
    disk : str
        Tells the disks of one host apart.
    """

    pinned_bytes: int
    disk_bytes: int
    most_bytes: int
    disk: str


NO_ROOM = FreeSpace(0, 0, 0, "")


def disk_room(folder: str) -> FreeSpace:
    """What the disk of a folder can take.

    Parameters
    ----------
    folder : str

    Returns
    -------
    FreeSpace
    """
    try:
        stat, device = os.statvfs(folder), os.stat(folder).st_dev
    except OSError:
        return FreeSpace(0, 0, UNKNOWN, folder)  # staging will say what is wrong with it
    free = stat.f_bavail * stat.f_frsize
    most = free * (1 if file_system(Path(folder)) in _PLAIN else _DENSEST)
    return FreeSpace(0, free, min(most, UNKNOWN), str(device))


def free_bytes(folder: str) -> int:
    """What the disk of a folder says that it can take; 0 where it cannot be asked."""
    try:
        stat = os.statvfs(folder)
    except OSError:
        return 0
    return stat.f_bavail * stat.f_frsize


def file_system(folder: Path) -> str:
    """The name of the kind of file system that a folder is in."""
    best, kind = "", "unknown file system"
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return kind
    place = str(folder.resolve()) + "/"
    for line in mounts:
        _, mount, name, *_ = line.split()
        mount = mount.replace("\\040", " ").rstrip("/") + "/"
        if place.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, name
    return kind

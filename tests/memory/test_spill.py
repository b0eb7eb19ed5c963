"""The disk tier: bytes come back as they went, files have no name and one reader, a full disk is an error."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcylon_lab.errors import SpillError, from_message, to_message
from gcylon_lab.memory.tiers import disk_tier
from gcylon_lab.memory.tiers.disk_tier import SpillFile, SpillRegion, SpillStore

LENGTHS = [0, 1, 63, 64, 65, 4096, 100_003, 0]


def buffers_of(lengths: list[int], seed: int = 0) -> list[memoryview]:
    return [memoryview(bytes((seed + i + j) % 256 for j in range(n))) for i, n in enumerate(lengths)]


def descriptor(file: SpillFile) -> int:
    """The spill file's own descriptor: the newest of this process that leads to its folder."""
    folder = os.path.realpath(file.store.folder)
    open_files = Path("/proc/self/fd").iterdir()
    return max(int(fd.name) for fd in open_files if _target(fd).startswith(folder + "/"))


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


@pytest.fixture(params=["O_TMPFILE", "unlinked at once", "folder refuses O_TMPFILE"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SpillStore:
    """A store in an empty folder, with each way to open a file that has no name."""
    if request.param == "unlinked at once":
        monkeypatch.delattr(os, "O_TMPFILE")
    elif request.param == "folder refuses O_TMPFILE":
        opened = os.open

        def refuse(path: str, flags: int, *rest: int, **more: int) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return opened(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", refuse)
    return SpillStore(str(tmp_path))


def test_buffers_come_back_as_they_were(store: SpillStore) -> None:
    file = store.new_file()
    regions = [file.append(buffers_of(LENGTHS, seed)) for seed in range(3)]
    empty = [file.append([]), file.append([memoryview(b"")])]
    for seed in (2, 0, 1):
        assert regions[seed].lengths == tuple(LENGTHS)
        assert [bytes(view) for view in regions[seed].read()] == [bytes(b) for b in buffers_of(LENGTHS, seed)]
    assert [region.read() for region in empty] == [[], [memoryview(b"")]]


@given(lengths=st.lists(st.lists(st.integers(0, 300), max_size=6), max_size=5))
@settings(max_examples=30)
def test_any_lengths_in_any_number(lengths: list[list[int]]) -> None:
    store = SpillStore()
    file = store.new_file()
    regions = [file.append(buffers_of(each, seed)) for seed, each in enumerate(lengths)]
    assert store.used_bytes == sum(region.nbytes for region in regions)
    for seed, (region, each) in enumerate(zip(regions, lengths, strict=True)):
        assert [bytes(view) for view in region.read()] == [bytes(b) for b in buffers_of(each, seed)]


@given(st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=12))
def test_some_buffers_alone(buffers: list[tuple[int, bool]]) -> None:
    file = SpillStore().new_file()
    whole = buffers_of([length for length, _ in buffers])
    file.append(buffers_of([777]))
    region, only = file.append(whole), [number for number, (_, wanted) in enumerate(buffers) if wanted]
    views = region.read(only)
    assert [view.tobytes() for view in views] == [whole[number].tobytes() for number in only]
    assert region.bytes_of(only) >= sum(view.nbytes for view in views)
    assert region.bytes_of(range(len(buffers))) == region.nbytes


def test_many_buffers_at_once(store: SpillStore) -> None:
    lengths = [(i * 37) % 90 for i in range(1500)]  # more than one system call takes
    region = store.new_file().append(buffers_of(lengths))
    assert [bytes(view) for view in region.read()] == [bytes(b) for b in buffers_of(lengths)]


def test_what_was_read_can_be_written_to_and_is_aligned(store: SpillStore) -> None:
    region = store.new_file().append(buffers_of([5, 4096, 8]))
    views = region.read()
    assert all(np.frombuffer(view, np.uint8).ctypes.data % 8 == 0 for view in views)
    views[0][:] = b"other"
    assert bytes(region.read()[0]) == bytes(buffers_of([5])[0])


def test_files_have_no_name_and_one_reader(store: SpillStore) -> None:
    file = store.new_file()
    file.append(buffers_of([1000]))
    assert os.listdir(store.folder) == []
    status = os.fstat(descriptor(file))
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_nlink == 0


def is_open(fd: int, file: os.stat_result) -> bool:
    """Whether a descriptor is still that file's; another thread of the tests may have been given its number since."""
    try:
        return os.path.samestat(os.fstat(fd), file)
    except OSError:
        return False


def test_bytes_and_files_go_with_the_last_region(store: SpillStore) -> None:
    file = store.new_file()
    fd = descriptor(file)
    regions = [file.append(buffers_of([1000])) for _ in range(3)]
    del file
    held = 3 * 1024  # each filled up to whole blocks of 64 bytes
    assert store.used_bytes == store.written_bytes == held
    regions.pop()
    assert store.used_bytes == 2 * 1024
    kept = os.fstat(fd)
    regions.clear()
    gc.collect()
    assert (store.used_bytes, store.written_bytes) == (0, held)
    assert not is_open(fd, kept)


def test_another_folder_holds_for_new_files(tmp_path: Path) -> None:
    store = SpillStore(str(tmp_path / "missing"))
    with pytest.raises(SpillError) as caught:
        store.new_file()
    assert "missing" in str(caught.value)
    assert "spill_dir" in caught.value.advice
    store.set_folder(str(tmp_path))
    assert store.new_file().append(buffers_of([10])).nbytes == 64
    store.set_folder("")
    assert os.path.isdir(store.folder)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpillError, match="'/.*/file' in which to stage is not a folder"):
        SpillStore(str(tmp_path / "file")).new_file()


def test_a_relative_folder_that_is_missing_says_from_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpillError, match=f"'scratch', seen from '{tmp_path}', in .* does not exist") as caught:
        SpillStore("scratch").new_file()
    assert "full path" in caught.value.advice


def test_short_writes_go_on_where_they_ended(store: SpillStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwritev

    def a_little(fd: int, vectors: list, offset: int) -> int:
        return write(fd, [memoryview(vectors[0])[:700]], offset)

    monkeypatch.setattr(os, "pwritev", a_little)
    region = store.new_file().append(buffers_of(LENGTHS))
    assert [bytes(view) for view in region.read()] == [bytes(b) for b in buffers_of(LENGTHS)]


class FullDisk:
    """What a disk that fills up does to a write: part of it goes, then the error comes."""

    def __init__(self) -> None:
        self.left = 2**62
        self._write = os.pwritev

    def pwritev(self, fd: int, vectors: list, offset: int) -> int:
        if self.left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        wrote = self._write(fd, [memoryview(vectors[0])[: self.left]], offset)
        self.left -= wrote
        return wrote


def test_full_disk_half_way_is_an_error_and_leaves_the_rest_usable(
    store: SpillStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk()
    monkeypatch.setattr(os, "pwritev", disk.pwritev)
    file = store.new_file()
    kept = file.append(buffers_of([5000]))
    before = store.used_bytes
    disk.left = 3000
    with pytest.raises(SpillError) as caught:
        file.append(buffers_of([2000, 2000]))
    error = caught.value
    assert isinstance(error, OSError)
    assert error.numbers["errno"] == errno.ENOSPC
    assert error.numbers["needed_bytes"] == 2 * 2048
    assert store.folder in str(error)
    assert "free" in str(error)
    assert "No space left" in str(error)
    assert from_message(to_message(error)).numbers == error.numbers
    assert store.used_bytes == before
    # What was written in vain takes no room on the disk that is full.
    assert os.fstat(descriptor(file)).st_size == kept.nbytes
    disk.left = 2**62
    again = file.append(buffers_of(LENGTHS, 9))
    assert bytes(kept.read()[0]) == bytes(buffers_of([5000])[0])
    assert [bytes(view) for view in again.read()] == [bytes(b) for b in buffers_of(LENGTHS, 9)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, where this process may mount one."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(tmp_path).encode(), b"tmpfs", 0, b"size=256k") != 0:
        pytest.skip(f"cannot mount a small file system: {os.strerror(ctypes.get_errno())}")
    yield tmp_path
    gc.collect()
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    store = SpillStore(str(small_disk))
    file = store.new_file()
    kept = file.append(buffers_of([100_000]))
    with pytest.raises(SpillError, match="No space left"):
        file.append(buffers_of([100_000, 100_000]))
    again = file.append(buffers_of([100_000], 3))  # only fits if the failed one left nothing behind
    assert bytes(kept.read()[0]) == bytes(buffers_of([100_000])[0])
    assert bytes(again.read()[0]) == bytes(buffers_of([100_000], 3)[0])


def test_a_file_size_limit_is_an_error_too(tmp_path: Path) -> None:
    store = SpillStore(str(tmp_path))
    file = store.new_file()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        kept = file.append(buffers_of([40_000]))
        with pytest.raises(SpillError, match="File too large"):
            file.append(buffers_of([40_000]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert bytes(kept.read()[0]) == bytes(buffers_of([40_000])[0])
    assert store.used_bytes == kept.nbytes


def test_a_file_cut_short_is_an_error_not_zeros(store: SpillStore) -> None:
    file = store.new_file()
    region: SpillRegion = file.append(buffers_of([5000]))
    os.ftruncate(descriptor(file), 1000)
    with pytest.raises(SpillError, match="4056 bytes short"):
        region.read()


def test_regions_are_aligned() -> None:
    assert [disk_tier._padded(n) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]

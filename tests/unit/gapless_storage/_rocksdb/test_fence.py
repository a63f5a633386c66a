"""The fence says what was durable last, whatever happens to its file."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from gapless.errors import VolumeCorruptError, VolumeForeignError
from gapless_storage._rocksdb import fence as fence_module
from gapless_storage._rocksdb.fence import _SLOT_BYTES, Fence, FenceFollower
from gapless_storage._rocksdb.layout import MARK_BYTES, Mark

VOLUME = bytes(range(16))


def mark(counter: int, generation: int = 1, volume: bytes = VOLUME) -> Mark:
    return Mark(volume, generation, 77, 66, counter)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A fence that was advanced from 1 to 5, one at a time."""
    path = tmp_path / "fence"
    Fence.create(path, mark(1))
    with closing(Fence(path)) as fence:
        for counter in range(2, 6):
            fence.advance(mark(counter))
    return path


def test_it_says_what_it_was_advanced_to(path: Path) -> None:
    with closing(Fence(path)) as fence:
        assert fence.mark == mark(5)


def test_a_new_one_says_what_it_was_made_with(tmp_path: Path) -> None:
    Fence.create(tmp_path / "fence", mark(9))

    with closing(Fence(tmp_path / "fence")) as fence:
        assert fence.mark == mark(9)


def test_it_never_goes_back(path: Path) -> None:
    with closing(Fence(path)) as fence:
        for counter in (4, 5):
            with pytest.raises(AssertionError):
                fence.advance(mark(counter))

        assert fence.mark == mark(5)


def test_a_higher_generation_goes_before_a_higher_counter(path: Path) -> None:
    with closing(Fence(path)) as fence:
        fence.advance(mark(5, generation=2))

    with closing(Fence(path)) as fence:
        assert fence.mark == mark(5, generation=2)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_harmless_or_seen(path: Path, mask: int) -> None:
    """The older slot is at most one sync behind; both spoilt are no fence."""
    content = path.read_bytes()
    used = [range(slot * _SLOT_BYTES, slot * _SLOT_BYTES + 16 + MARK_BYTES) for slot in (0, 1)]
    for place in [*used[0], *used[1]]:
        spoilt = bytearray(content)
        spoilt[place] ^= mask
        path.write_bytes(spoilt)

        with closing(Fence(path)) as fence:
            assert fence.mark in (mark(5), mark(4))

        both = bytearray(spoilt)
        both[(place + _SLOT_BYTES) % (2 * _SLOT_BYTES)] ^= mask
        path.write_bytes(both)
        with pytest.raises(VolumeCorruptError, match="garbled"):
            Fence(path)


def test_a_torn_write_leaves_what_was_durable_before(path: Path) -> None:
    before = path.read_bytes()
    with closing(Fence(path)) as fence:
        fence.advance(mark(6))
    after = path.read_bytes()
    changed = [place for place in range(len(after)) if before[place] != after[place]]
    for torn_at in range(changed[0], changed[-1] + 1):
        path.write_bytes(after[:torn_at] + before[torn_at:])

        with closing(Fence(path)) as fence:
            assert fence.mark in (mark(5), mark(6))


def test_advancing_goes_on_over_a_spoilt_slot(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[_SLOT_BYTES + 20] ^= 1
    path.write_bytes(content)
    with closing(Fence(path)) as fence:
        for counter in (6, 7):
            fence.advance(mark(counter))

    with closing(Fence(path)) as fence:
        assert fence.mark == mark(7)


@pytest.mark.parametrize("length", [0, 1, 30, _SLOT_BYTES])
def test_what_is_left_of_it_is_read(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])

    if length < _SLOT_BYTES:
        with pytest.raises(VolumeCorruptError, match="garbled"):
            Fence(path)
    else:
        with closing(Fence(path)) as fence:
            assert fence.mark in (mark(4), mark(5))


def test_a_missing_one_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(VolumeCorruptError, match="missing"):
        Fence(tmp_path / "fence")


def test_slots_of_two_volumes_are_garbled(path: Path) -> None:
    Fence.create(path.with_name("other"), mark(6, volume=bytes(16)))
    foreign = path.with_name("other").read_bytes()[:_SLOT_BYTES]
    path.write_bytes(foreign + path.read_bytes()[_SLOT_BYTES:])

    with pytest.raises(VolumeCorruptError, match="garbled"):
        Fence(path)


def test_a_newer_owner_stops_an_older_one(path: Path) -> None:
    """When the lock on the directory is lost, as it may be on a network file system."""
    with closing(Fence(path)) as older, closing(Fence(path)) as newer:
        newer.advance(mark(6, generation=2))

        with pytest.raises(VolumeForeignError, match="newer owner"):
            older.advance(mark(6))
        newer.advance(mark(7, generation=2))

    with closing(Fence(path)) as fence:
        assert fence.mark == mark(7, generation=2)


def test_what_was_written_and_not_synced_is_nobody_elses(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "injected")

    with closing(Fence(path)) as fence:
        before = fence.mark
        monkeypatch.setattr(fence_module, "sync_file", fail)
        with pytest.raises(OSError, match="injected"):
            fence.advance(mark(6))

        fence.check_owner()
        assert fence.mark == before


def test_a_follower_that_is_stopped_at_any_moment_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it is stopped between its waiting and its beginning: it takes the call for one that the fence is due."""
    events: list[threading.Event] = []
    stopping = threading.Event()

    class Event(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            events.append(self)

        def clear(self) -> None:
            stopping.set()
            while not all(event.is_set() for event in events):
                time.sleep(0.001)
            super().clear()

    advanced: list[None] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Event", Event)
        follower = FenceFollower(lambda: advanced.append(None))
    follower.follow()
    assert stopping.wait(20)
    follower.stop()

    assert not any(thread.name == "gapless-fence" for thread in threading.enumerate())
    assert advanced == []

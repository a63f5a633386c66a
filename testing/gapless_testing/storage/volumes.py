"""What a volume promises as a whole: who may open it, what survives its closing, what space it takes."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from contextlib import closing, suppress

import pytest

from gapless.errors import VolumeAbsentError, VolumeFailedError, VolumeForeignError, VolumeLockedError
from gapless.spi import LogVolume, StorageCapabilities, VolumeIdentity
from gapless_testing.storage.harness import (
    IDENTITY,
    HarnessFixtures,
    StorageHarness,
    indexes,
    lacks,
    need,
    need_reopening,
)
from gapless_testing.storage.streams import EVERYTHING, put_written

STRANGERS = [
    ("test-network", "other-node"),
    ("other-network", "test-node"),
    ("", "other-node"),
    ("other-network", ""),
]
"""Who is refused: the network and the node, of which "" asks nothing."""


class VolumeTests(HarnessFixtures):
    """Identity, locking, closing, reopening and space."""

    def test_it_is_a_volume(self, volume: LogVolume) -> None:
        assert lacks(volume, LogVolume) == []
        assert isinstance(volume.capabilities, StorageCapabilities)
        assert volume.identity == IDENTITY
        assert volume.created is True

    def test_nothing_staged_is_nothing_to_do(self, volume: LogVolume) -> None:
        volume.write()
        volume.sync()
        volume.write()

        assert volume.reclaim() == 0

    def test_one_write_shows_all_of_a_batch(self, volume: LogVolume) -> None:
        volume.stream("a").put(1, b"a")
        volume.stream("b").put(2, b"b")
        volume.table("t").put(b"key", b"value")
        before = [indexes(volume.stream(name).read(*EVERYTHING)) for name in "ab"]
        volume.write()

        assert before == [[], []]
        assert [indexes(volume.stream(name).read(*EVERYTHING)) for name in "ab"] == [[1], [2]]
        assert volume.table("t").get(b"key") == b"value"

    # ---------------------------------------------------------------------------------- who may open

    def test_two_cannot_have_it(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        with closing(harness.open()) as volume:
            put_written(volume, volume.stream("s"), 1)

            with pytest.raises(VolumeLockedError):
                harness.open()

            put_written(volume, volume.stream("s"), 2)
            volume.sync()

            assert indexes(volume.stream("s").read(*EVERYTHING)) == [1, 2]
        harness.open().close()

    def test_a_stranger_cannot_have_it(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        with closing(harness.open()) as volume:
            put_written(volume, volume.stream("s"), 1)

        for network, node in STRANGERS:
            try:
                harness.open(VolumeIdentity(network, node)).close()
            except VolumeForeignError:
                continue
            raise AssertionError(f"a volume of {IDENTITY} was opened for network {network!r} and node {node!r}")

        with closing(harness.open()) as volume:
            assert indexes(volume.stream("s").read(*EVERYTHING)) == [1]

    def test_what_is_not_asked_is_not_checked(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        harness.open().close()

        for network, node in (("", ""), ("", IDENTITY.node), (IDENTITY.network, "")):
            with closing(harness.open(VolumeIdentity(network, node))) as volume:
                assert volume.identity == IDENTITY, f"opened for network {network!r} and node {node!r}"

    # ------------------------------------------------------------------------------ whether it is there

    def test_an_absent_volume_is_no_new_one(self, harness: StorageHarness) -> None:
        """Its disk may not be mounted. What was not made is not there the next time either."""
        need(harness, "open_existing")
        for _ in range(2):
            with pytest.raises(VolumeAbsentError):
                harness.open_existing()

    def test_a_volume_that_is_there_needs_no_leave(self, harness: StorageHarness) -> None:
        need(harness, "open_existing")
        with closing(harness.open()) as volume:
            put_written(volume, volume.stream("s"), 1)

        with closing(harness.open_existing()) as volume:
            assert volume.created is False
            assert indexes(volume.stream("s").read(*EVERYTHING)) == [1]

    def test_tending_a_volume_changes_nothing(self, volume: LogVolume) -> None:
        put_written(volume, volume.stream("s"), 1)
        volume.tend()
        volume.sync()
        volume.tend()

        assert indexes(volume.stream("s").read(*EVERYTHING)) == [1]

    def test_nothing_is_durable_in_a_volume_that_was_removed(self, harness: StorageHarness) -> None:
        need(harness, "open_existing", "remove")
        with closing(harness.open()) as volume:
            put_written(volume, volume.stream("s"), 1)
            volume.sync()
            harness.remove(volume)

            with suppress(VolumeAbsentError, VolumeFailedError):
                put_written(volume, volume.stream("s"), 2)
            with pytest.raises((VolumeAbsentError, VolumeFailedError)):
                volume.sync()
            with pytest.raises(VolumeAbsentError):
                volume.tend()

        with pytest.raises(VolumeAbsentError):
            harness.open_existing()

    def test_a_volume_that_was_removed_is_missed_when_nothing_is_written(self, harness: StorageHarness) -> None:
        need(harness, "remove")
        with closing(harness.open()) as volume:
            harness.remove(volume)

            with pytest.raises(VolumeAbsentError):
                volume.tend()
            with pytest.raises((VolumeAbsentError, VolumeFailedError)):
                volume.sync()

    # --------------------------------------------------------------------------- closing and opening

    def test_only_the_first_opening_creates(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        harness.open().close()

        with closing(harness.open()) as volume:
            assert volume.created is False
            assert volume.identity == IDENTITY

    def test_closing_keeps_what_was_written(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        with closing(harness.open()) as volume:
            put_written(volume, volume.stream("synced"), 10, 20)
            volume.table("t").put(b"synced", b"1")
            volume.write()
            volume.sync()
            put_written(volume, volume.stream("written"), 5)
            volume.table("t").put(b"written", b"2")
            volume.write()

        with closing(harness.open()) as volume:
            assert list(volume.stream("synced").read(*EVERYTHING)) == [
                (10, b"record 10"),
                (20, b"record 20"),
            ]
            assert indexes(volume.stream("written").read(*EVERYTHING)) == [5]
            assert list(volume.table("t").scan()) == [(b"synced", b"1"), (b"written", b"2")]

    def test_closing_drops_what_was_only_staged(self, harness: StorageHarness) -> None:
        """Half a turn of its owner is nothing that was ever meant to be there."""
        need_reopening(harness)
        with closing(harness.open()) as volume:
            stream = volume.stream("s")
            put_written(volume, stream, 1)
            stream.put(2, b"staged")
            stream.chop(1)
            volume.table("t").put(b"key", b"staged")

        with closing(harness.open()) as volume:
            stream = volume.stream("s")
            assert (stream.first, stream.last) == (0, 1)
            assert indexes(stream.read(*EVERYTHING)) == [1]
            assert volume.table("t").get(b"key") is None

    def test_a_closed_volume_takes_nothing(self, harness: StorageHarness) -> None:
        volume = harness.open()
        stream = volume.stream("s")
        volume.close()
        volume.close()

        with pytest.raises(VolumeFailedError):
            put_written(volume, stream, 1)
        with pytest.raises(VolumeFailedError):
            volume.sync()

    def test_first_and_last_outlive_records_and_closings(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        with closing(harness.open()) as volume:
            put_written(volume, volume.stream("all chopped"), 10, 20)
            put_written(volume, volume.stream("half chopped"), 10, 20)
            volume.stream("all chopped").chop(20)
            volume.stream("half chopped").chop(15)
            volume.write()
            volume.sync()
            volume.reclaim()
        for _ in range(2):
            with closing(harness.open()) as volume:
                all_chopped, half_chopped = volume.stream("all chopped"), volume.stream("half chopped")

                assert (all_chopped.first, all_chopped.last) == (20, 20)
                assert (half_chopped.first, half_chopped.last) == (15, 20)
                assert indexes(all_chopped.read(*EVERYTHING)) == []
                assert indexes(half_chopped.read(*EVERYTHING)) == [20]
                with pytest.raises(ValueError, match="20"):
                    all_chopped.put(20, b"")

    def test_names_keep_their_contents(self, harness: StorageHarness) -> None:
        """Whatever order they are asked for in, new ones between old ones."""
        need_reopening(harness)
        names = [f"name {number}" for number in range(20)]
        for opening in range(3):
            with closing(harness.open()) as volume:
                for name in names if opening % 2 else reversed(names):
                    volume.stream(f"unused {opening} {name}")
                    put_written(volume, volume.stream(name), opening + 1)
                    volume.table(name).put(b"%d" % opening, name.encode())
                volume.write()

        with closing(harness.open()) as volume:
            for name in names:
                assert indexes(volume.stream(name).read(*EVERYTHING)) == [1, 2, 3]
                assert list(volume.table(name).scan()) == [(b"%d" % n, name.encode()) for n in range(3)]

    def test_size_is_known_after_reopening(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        with closing(harness.open()) as volume:
            stream = volume.stream("s")
            for index in range(1, 129):
                stream.put(index, bytes(16 << 10))
                volume.write()
            stream.chop(32)
            volume.write()
            size = stream.size

        with closing(harness.open()) as volume:
            stream = volume.stream("s")
            reopened = stream.size
            stream.chop(128)
            volume.write()

            assert size // 2 <= reopened <= size * 2
            assert stream.size <= size // 20

    # -------------------------------------------------------------------------------------- space

    def test_free_bytes(self, volume: LogVolume) -> None:
        if volume.free_bytes is None:
            pytest.skip("free_bytes is None: the volume says that it means nothing here")
        assert volume.free_bytes >= 0

    def test_reclaim_keeps_what_is_live(self, harness: StorageHarness) -> None:
        with closing(harness.open()) as volume:
            a, b = volume.stream("a"), volume.stream("b")
            for index in range(1, 65):
                a.put(index, b"a" * 10_000)
                b.put(index, b"b" * 10_000)
                volume.table("t").put(b"%d" % index, b"row")
                volume.write()
            a.chop(40)
            volume.write()
            volume.sync()
            before = volume.reclaimable
            volume.reclaim()
            put_written(volume, a, 65)

            assert before >= 200_000 or harness.chops_at_once
            assert volume.reclaimable <= before // 4
            assert indexes(a.read(*EVERYTHING)) == list(range(41, 66))
            assert indexes(b.read(*EVERYTHING, max_bytes=1 << 30)) == list(range(1, 65))
            assert len(list(volume.table("t").scan())) == 64
        if harness.outlives_close:
            with closing(harness.open()) as volume:
                assert indexes(volume.stream("a").read(*EVERYTHING)) == list(range(41, 66))
                assert (volume.stream("a").first, volume.stream("b").first) == (40, 0)
                assert indexes(volume.stream("b").read(*EVERYTHING, max_bytes=1 << 30)) == list(range(1, 65))

    def test_reclaim_leaves_what_is_staged(self, volume: LogVolume) -> None:
        put_written(volume, volume.stream("s"), 1, 2)
        volume.stream("s").chop(1)
        volume.write()
        volume.sync()
        volume.stream("s").put(3, b"record 3")
        volume.table("t").put(b"key", b"value")
        volume.reclaim()
        before = (indexes(volume.stream("s").read(*EVERYTHING)), list(volume.table("t").scan()))
        volume.write()

        assert before == ([2], []), f"reclaim() has written what was only staged: {before}"
        assert indexes(volume.stream("s").read(*EVERYTHING)) == [2, 3]
        assert list(volume.table("t").scan()) == [(b"key", b"value")]

    def test_reclaiming_again_and_again(self, volume: LogVolume) -> None:
        stream = volume.stream("s")
        for window in range(10):
            for index in range(window * 20 + 1, window * 20 + 21):
                stream.put(index, b"x" * 5_000)
            stream.chop(window * 20)
            volume.write()
            volume.sync()
            volume.reclaim()

            assert indexes(stream.read(*EVERYTHING)) == list(range(window * 20 + 1, window * 20 + 21))
        assert volume.reclaim() == 0

"""Who a node is (INV13, S18, U04)."""

from __future__ import annotations

import pytest

from gapless.errors import VolumeCorruptError, VolumeForeignError
from gapless.node.assembly import SECRET_BYTES, TABLE, claim
from volumes import FakeVolume

WALL = 1_800_000_000_000


def test_a_new_volume_gets_an_identity_and_it_is_durable_before_anyone_hears_of_it() -> None:
    volume = FakeVolume()

    identity = claim(volume, "", WALL)

    assert identity.boot == 1
    assert len(identity.secret) == SECRET_BYTES
    assert identity.network != identity.storage_id
    assert volume.calls[-1] == "sync"


def test_every_start_counts_and_nothing_else_changes() -> None:
    volume = FakeVolume()
    first = claim(volume, "", WALL)

    second = claim(volume, "", WALL)
    third = claim(volume, first.network, WALL)

    assert [first.boot, second.boot, third.boot] == [1, 2, 3]
    assert {identity.network for identity in (first, second, third)} == {first.network}
    assert {identity.storage_id for identity in (first, second, third)} == {first.storage_id}
    assert {identity.secret for identity in (first, second, third)} == {first.secret}
    assert volume.calls.count("sync") == 3


def test_no_start_has_the_number_of_another_one_before_it() -> None:
    """Found by the simulator: a late receipt of a session under the same number, before the disk was lost (I7)."""
    starts = [
        claim(volume, "net", WALL).start for volume in (FakeVolume(), FakeVolume(), FakeVolume()) for _ in range(3)
    ]

    assert len(set(starts)) == 9
    assert all(0 <= start < 1 << 32 for start in starts)
    first = claim(volume := FakeVolume(), "net", WALL).start
    assert claim(volume, "net", WALL).start == (first + 1) % (1 << 32)


def test_two_volumes_have_nothing_in_common() -> None:
    first, second = claim(FakeVolume(), "", WALL), claim(FakeVolume(), "", WALL)

    assert first.network != second.network
    assert first.storage_id != second.storage_id
    assert first.secret != second.secret


def test_the_configured_network_is_kept_and_another_one_refused() -> None:
    volume = FakeVolume()
    assert claim(volume, "trading", WALL).network == "trading"
    volume.calls.clear()

    with pytest.raises(VolumeForeignError, match="belongs to network 'trading', the configuration says 'other'"):
        claim(volume, "other", WALL)

    assert volume.calls == []
    assert claim(volume, "", WALL).boot == 2


@pytest.mark.parametrize("lost", [b"network", b"storage", b"secret", b"boot"])
def test_a_volume_that_lost_part_of_its_identity_is_not_served(lost: bytes) -> None:
    volume = FakeVolume()
    claim(volume, "", WALL)
    del volume.tables[TABLE].rows[lost]

    with pytest.raises(VolumeCorruptError, match=lost.decode()):
        claim(volume, "", WALL)


def test_a_volume_whose_creator_was_killed_at_once_is_new() -> None:
    volume = FakeVolume()
    volume.created = False

    assert claim(volume, "", WALL).boot == 1


def test_the_secret_is_not_shown() -> None:
    identity = claim(FakeVolume(), "", WALL)

    assert repr(identity.secret) not in repr(identity)
    assert identity.secret.hex() not in repr(identity)


def test_each_start_has_a_higher_incarnation_though_the_clock_goes_back_and_a_copy_has_another() -> None:
    volume = FakeVolume()
    first = claim(volume, "net", WALL)
    back = claim(volume, "net", WALL - 3_600_000)
    on = claim(volume, "net", WALL + 1000)

    assert first.incarnation < back.incarnation < on.incarnation
    drawn = {claim(FakeVolume(), "net", WALL).incarnation for _ in range(5)}
    assert len(drawn) == 5, "two copies that start in one millisecond"


def test_it_is_durable_before_anybody_hears_of_it() -> None:
    volume = FakeVolume()
    claim(volume, "net", WALL)

    assert volume.calls[-1] == "sync"
    assert volume.table(TABLE).get(b"incarnation") is not None


def test_who_was_shut_out_on_a_volume_tells_the_next_start_by_whom() -> None:
    volume = FakeVolume()
    assert claim(volume, "net", WALL).shut_out_by == 0

    volume.table(TABLE).put(b"shut out by", (77).to_bytes(8, "big"))
    volume.write()

    assert claim(volume, "net", WALL).shut_out_by == 77

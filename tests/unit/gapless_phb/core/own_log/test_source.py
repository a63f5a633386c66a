"""The source whose ticks the broker gives out itself: what goes before giving up, and what damage forbids."""

from __future__ import annotations

from gapless_phb.core.own_log.source import OwnLogSource
from unit.gapless_phb.harness import Harness, at


def own(harness: Harness) -> OwnLogSource:
    source = harness.role._pubends[harness.pubend].source
    assert isinstance(source, OwnLogSource)
    return source


def test_nothing_is_given_up_before_the_publishers_checkpoint_is_durable() -> None:
    harness = Harness()
    harness.sync()
    harness.publisher().send(2)
    harness.sync()
    source = own(harness)
    again: list[int] = []

    source.give_up(source.log.newest, again.append)
    asked = source.log.lost_asked
    harness.pump()
    harness.sync()
    source.give_up(source.log.newest, again.append)

    assert (asked, again, source.log.lost_asked) == (0, [harness.now], source.log.newest)


def test_of_a_damaged_log_nothing_is_given_up_that_no_checkpoint_covers() -> None:
    harness = Harness()
    harness.sync()
    harness.publisher().send(2)
    harness.sync()
    source = own(harness)
    source.log.damage.refuse("it is rotten")

    source.give_up(source.log.newest, lambda _now: None)

    assert source.log.lost_asked == 0


def test_the_time_of_a_stop_is_a_void_and_that_before_the_first_start_is_none() -> None:
    harness = Harness()
    harness.sync()
    assert own(harness).void(harness.now, harness.wall) is None

    harness.wall += 60_000
    harness.crash()

    void = own(harness).void(harness.now, harness.wall)
    assert void is not None
    assert void[1] == at(61_000) - 1

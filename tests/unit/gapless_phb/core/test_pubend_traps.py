"""Traps of the PHB that no switch shows to the simulator: what it says when, and what an unfinished write leaves."""

from __future__ import annotations

from gapless.core.network.facts import Probe, Released
from gapless.core.stream.ticks import STEP
from unit.gapless_phb.harness import (
    NO_RETENTION,
    Harness,
    at,
    knows,
    lines,
)


def test_t08_probes_come_later_and_later() -> None:
    harness = Harness(members=("shb1",))
    harness.sync()
    harness.publisher().send()
    harness.sync()

    seconds = [second for second in range(1, 200) if any(isinstance(effect, Probe) for effect in harness.advance(1000))]

    assert seconds == [3, 9, 21, 45, 93, 141, 189]


def test_t09_lost_is_said_only_when_it_is_durable() -> None:
    """The release point is written with the chop; until that is synced, a crash would take it back."""
    harness = Harness(members=("shb1",))
    harness.sync()
    harness.publisher().send()
    harness.sync()
    newest = harness.status()["newest"]
    harness.advance(10)
    harness.release(newest)
    harness.advance(0, sync=False)
    harness.sync()  # the checkpoint
    harness.advance(0, sync=False)
    assert harness.chopped == newest  # the chop is done, and not durable

    (before,) = knows(harness.advance(1000, sync=False))
    harness.sync()
    (after,) = knows(harness.advance(1000, sync=False))

    assert before.knowledge.lost == 0
    assert after.knowledge.lost == harness.status()["lost"] == newest


def test_t10_an_shb_that_is_given_up_pins_nothing() -> None:
    harness = Harness(members=("dead", "shb1"))
    harness.sync()
    harness.publisher().send()
    harness.sync()
    harness.hold("dead", 1, {7: at(1)})
    harness.sync()

    harness.role.retire("dead")
    harness.pump()
    said = lines(harness.sync())
    harness.release(harness.status()["newest"])  # what the router says now that it counts one member
    harness.advance(2000)

    assert said == ["opened stable=1010 members: shb1@1000"]
    assert harness.logged == []
    harness.crash()
    assert "members: shb1@1000" in lines(harness.sync())[0]


def test_t43_what_an_undecided_chop_took_is_neither_lost_nor_silent() -> None:
    """The chop is done and not yet durable: a crash would bring the events back."""
    harness = Harness(members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    harness.sync()
    chopped = harness.status()["newest"]
    harness.advance(10)
    harness.release(chopped)
    harness.advance(1000, sync=False)
    harness.sync()  # the checkpoint
    harness.advance(0, sync=False)  # the chop
    assert harness.chopped == chopped
    assert harness.status()["lost"] == 0
    publisher.send()
    harness.sync(0)
    harness.ask((at(999), at(1500)))

    (answer,) = knows(harness.read())

    assert (answer.knowledge.lo, answer.knowledge.hi) == (chopped, at(1500))


def test_t50_a_chop_leaves_records_that_end_above_it() -> None:
    harness = Harness(members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    publisher.send(10)
    harness.sync()
    middle = at(1010, 5)

    harness.advance(10)
    harness.release(middle)
    harness.advance(2000)
    harness.ask((at(999), at(1010, 10)))
    (answer,) = knows(harness.read())

    assert harness.status()["lost"] == middle
    assert answer.knowledge.lost == middle
    assert list(answer.knowledge.data.ticks) == [at(1010, 1) + STEP * index for index in range(10)]


def test_a_member_that_asks_while_a_chop_is_written_begins_above_it() -> None:
    """1.4: at = max(stable, lost handed over), though that chop is not durable yet."""
    harness = Harness(NO_RETENTION, members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    harness.sync()
    harness.release(harness.status()["newest"])
    harness.advance(1000, sync=False)
    harness.sync()
    harness.advance(0, sync=False)  # the chop is asked for
    asked = harness.chopped

    harness.feed(Released(harness.pubend, at(1), at(1)))
    harness.hold("shb1", 1, {5: 0, 6: at(500), 7: asked + 5})
    held = lines(harness.sync())

    assert "held shb1 version 1: 5@1010 6@1010 7@1010.0+5" in held

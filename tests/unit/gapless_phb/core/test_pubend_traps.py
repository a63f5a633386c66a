"""The traps that are the PHB's: each test fails when the rule that it is named after is broken."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Know, Probe, Released, Verdict
from gapless.core.stream.ticks import STEP
from unit.gapless_phb.harness import (
    NO_RETENTION,
    Harness,
    at,
    bodies,
    knows,
    lines,
    outcomes,
)


def test_t02_an_event_never_falls_into_a_silence_of_an_earlier_life() -> None:
    """Silence is said up to now, the broker dies, and the wall clock comes back a second earlier."""
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    silent_to = max(know.knowledge.hi for know in knows(harness.advance(5000)))

    harness.wall -= 5000
    harness.crash()
    harness.sync()
    publisher.epoch = 0
    publisher.open()
    harness.sync()
    publisher.send()
    (know,) = knows(harness.sync())

    assert know.knowledge.data.ticks[0] > silent_to


def test_t02_an_event_of_the_same_moment_is_above_the_silence() -> None:
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    harness.advance(990)
    assert harness.status()["stable"] == at(2000)  # silence up to this very moment

    publisher.send()
    (know,) = knows(harness.sync())

    assert list(know.knowledge.data.ticks) == [at(2000, 1)]


def test_t02_silence_waits_for_its_reservation() -> None:
    """The reservation is asked for again and again, and the disk does not answer: silence ends with the old one."""
    harness = Harness()
    harness.sync()

    silences = knows(harness.advance(10_000, sync=False))

    assert max(know.knowledge.hi for know in silences) == harness.status()["lease"] == at(3000)


def test_t08_probes_follow_what_is_delivered_not_what_is_released() -> None:
    harness = Harness(members=("shb1",))
    harness.sync()
    harness.publisher().send()
    harness.sync()
    newest = harness.status()["newest"]

    harness.release(released=at(1), delivered=newest)

    assert [effect for effect in harness.advance(120_000) if isinstance(effect, Probe)] == []


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


@pytest.mark.parametrize("kept", range(4))
def test_t21_what_was_chopped_is_still_known_as_logged(kept: int) -> None:
    """Whatever of checkpoint and chop reaches the disk, a batch that was logged is not logged again."""
    harness = Harness(members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    for _ in range(3):
        publisher.send(2)
    harness.sync()
    harness.release(harness.status()["newest"])
    harness.advance(1000, sync=False)
    harness.sync(kept)
    harness.pump()
    harness.crash(kept)
    harness.sync()
    publisher.epoch = 0
    publisher.open()
    harness.sync()

    first, second = outcomes(publisher.repeat(3, 2)), outcomes(publisher.repeat(7, 2))

    assert [outcome.verdict for outcome in first] == [Verdict.OK]
    assert [run.count for run in first[0].ticks] == [2]
    assert second == []
    assert [outcome.sequence for outcome in outcomes(harness.sync())] == [8]


def test_t39_a_hole_is_refused_and_the_retry_of_what_was_refused_is_logged() -> None:
    """Sequence 1 is refused, 2 follows it; were 2 taken, the retry of 1 would look like a duplicate."""
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    harness.role.on_space(low=True, now=harness.now, wall=harness.wall)
    refused = publisher.send()
    harness.role.on_space(low=False, now=harness.now, wall=harness.wall)

    follower, retry = publisher.send(), publisher.repeat(1)
    again = publisher.repeat(2)

    assert [outcome.verdict for outcome in outcomes([*refused, *follower])] == [Verdict.RETRY, Verdict.RESUME]
    assert outcomes(follower)[0].sequence == 1
    assert [*retry, *again] == []
    assert [bodies(know.knowledge.data) for know in knows(harness.sync())] == ["1010=ann/1 1010.1=ann/2"]


def test_t40_silence_before_a_pending_event_ends_at_the_reservation() -> None:
    """The story of T40: A is durable, B pending; silence between them must survive the loss of B."""
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    harness.advance(5000, sync=False)
    publisher.send()
    (a_and_silence,) = knows(harness.sync(1))
    assert a_and_silence.knowledge.hi == at(3000)  # the reservation of A's group, far below B at 6000

    harness.wall -= 4500
    harness.crash()
    harness.sync()
    publisher.epoch = 0
    publisher.open()
    harness.sync()
    publisher.send()
    after = knows(harness.sync())[-1].knowledge

    assert bodies(after.data).endswith("ann/2")
    assert after.data.ticks[0] > a_and_silence.knowledge.hi


def test_t40_silence_never_crosses_a_pending_event() -> None:
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    harness.advance(10)
    publisher.send()
    publisher.send(3)
    harness.advance(500, sync=False)

    (know,) = knows(harness.sync(1))
    asked = harness.ask((at(1000), at(2000)))
    harness.read()

    assert know.knowledge.hi == at(1020) - 1
    assert knows(asked) == []
    assert knows(harness.said)[-1].knowledge.hi == at(1020) - 1


def test_t41_a_new_member_bounds_the_release_from_the_step_in_which_it_asks() -> None:
    """Its membership is not durable yet when minima that do not count it come in."""
    harness = Harness(members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    harness.sync()
    at_enrolment = harness.status()["stable"]

    assert harness.enrol("shb2") == []
    harness.advance(10, sync=False)
    publisher.send()
    harness.sync(0)
    harness.release(at(10_000))  # computed without shb2
    enrolled = harness.sync()
    harness.release(at(10_000))  # still on its way within the node when the router was told
    harness.advance(3000)

    assert "enrolled shb2 at 1010" in lines(enrolled)
    assert harness.status()["lost"] <= at_enrolment
    assert len(harness.logged) == 1
    harness.release(at(10_000))  # a later turn: shb2 is counted
    harness.advance(2000)
    assert harness.logged == []


def test_t43_what_a_chop_took_while_it_was_read_is_lost_not_silent() -> None:
    harness = Harness(members=("shb1",))
    harness.sync()
    harness.publisher().send()
    harness.sync()
    newest = harness.status()["newest"]
    harness.ask((at(999), newest))
    harness.release(newest)
    harness.advance(2000)
    assert harness.logged == []

    (answer,) = knows(harness.read())

    assert answer.knowledge.lost >= newest


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


def test_t44_what_a_failed_write_left_is_adopted_and_made_durable_before_it_is_said() -> None:
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    harness.crash(keep=1)  # nothing was acknowledged, and yet the record is there
    assert len(harness.logged) == 1

    before = harness.ask((at(999), at(1010)))
    harness.read()
    assert knows(before) == []
    assert [effect for effect in harness.said if isinstance(effect, Know)] == []

    harness.sync()
    harness.ask((at(999), at(1010)))
    (answer,) = knows(harness.read())
    assert bodies(answer.knowledge.data) == "1010=ann/1"
    publisher.epoch = 0
    publisher.open()
    assert lines(harness.sync())[-1] == "ann: ok epoch 1.1 sequence 1"
    (again,) = outcomes(publisher.repeat(1))
    assert again.verdict is Verdict.OK


def test_t50_reads_return_what_overlaps() -> None:
    """A record of ten ticks is found by a want for one in its middle."""
    harness = Harness()
    harness.sync()
    harness.publisher().send(10)
    harness.sync()
    middle = at(1010, 5)

    harness.ask((middle - 1, middle))
    (answer,) = knows(harness.read())

    assert (answer.knowledge.lo, answer.knowledge.hi) == (middle - 1, middle)
    assert bodies(answer.knowledge.data) == "1010.5=ann/6"


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

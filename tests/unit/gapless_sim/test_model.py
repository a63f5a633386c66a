"""The model: what is owed to whom."""

from __future__ import annotations

from gapless.core.client.effects import Attached
from gapless.core.network.facts import Enrolled
from gapless.core.ports import Chop, Operation, Put
from gapless.core.stream.ticks import STEP
from gapless.core.wire.messages import Subscribed
from gapless_sim.model import begins_of
from gapless_sim.pubend_logs import chops
from unit.gapless_sim.oracles.hands import EARLIEST, NODE, SHB, Hands, P, violates


def test_the_truth_is_all_that_was_ever_said() -> None:
    hands = Hands()
    hands.say(10, 20, (20, 2))
    hands.say(0, 10, (10, 1), reply=True)
    hands.say(10, 20, lost=30, reply=True)
    history = hands.model.histories[P]

    assert history.ticks == [10, 20]
    assert history.newest == 20
    assert history.lost == 30
    assert hands.model.places[1].tick == 10


def test_a_receipt_is_a_part_of_it() -> None:
    hands = Hands()
    hands.receipt(1, 10)

    assert hands.model.histories[P].events[10].letter.key == 1


def test_what_a_log_has_at_a_start_is_a_part_of_it() -> None:
    hands = Hands()
    hands.opens()
    hands.log((2 * STEP, 1), (5 * STEP, 3))
    hands.letter(9)
    heard: list[int] = []
    hands.model.listeners.append(lambda event: heard.append(event.letter.key))

    hands.boots((3 * STEP, hands.record(1, 2)), (6 * STEP, hands.record(3, 4)), (7 * STEP, hands.record(5)))

    assert heard == [2, 4, 5]
    ticks = {tick: event.letter.key for tick, event in hands.model.histories[P].events.items()}
    assert ticks == {2 * STEP: 1, 3 * STEP: 2, 5 * STEP: 3, 6 * STEP: 4, 7 * STEP: 5}


def test_what_is_given_up_does_not_come_back_with_a_start() -> None:
    hands = Hands()
    hands.opens()
    hands.chop(STEP)
    hands.boots((STEP, hands.record(1)))

    assert not hands.model.histories[P].events


def test_what_nobody_published_is_no_truth() -> None:
    hands = Hands()
    unknown = hands.knowledge(0, 10, [(10, 1)])
    del hands.model.letters[1]

    with violates("I1"):
        hands.observe.known(NODE, unknown)


def test_listeners_hear_of_each_event_once() -> None:
    hands = Hands()
    heard: list[int] = []
    hands.model.listeners.append(lambda event: heard.append(event.tick))
    hands.log((10, 1), (20, 2))
    hands.say(0, 20, (10, 1), (20, 2), reply=True)

    assert heard == [10, 20]


def test_a_share_is_what_matches() -> None:
    hands = Hands()
    hands.letter(2, k=2)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(k=1), p=0)
    hands.log((30, 3))
    share = hands.model.share(reader, P)
    assert share is not None

    assert share.ticks == [10, 30]
    assert share.between(10, 30) == [30]
    assert share.first_between(10, 29) is None
    assert share.first_between(10, 30) == 30
    assert share.newest == 30


def test_whoever_begins_at_the_earliest_is_judged_by_what_was_there() -> None:
    hands = Hands()
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(start=EARLIEST), p=15)
    share = hands.model.share(reader, P)
    assert share is not None

    assert share.ticks == [10, 20]
    assert share.start == 15


def test_what_came_while_nobody_used_a_row_is_looked_at_when_somebody_does() -> None:
    hands = Hands()
    row = hands.row()
    hands.leave(hands.attach(row, p=5))
    row.ended = True
    hands.observe.checkpoint()
    hands.log((10, 1))
    assert hands.model.followed == []

    row.ended = False
    reader = hands.attach(row, p=5)
    share = hands.model.share(reader, P)
    assert share is not None
    assert share.ticks == [10]


def test_another_subscription_of_a_row_begins_anew() -> None:
    hands = Hands()
    row = hands.row()
    hands.leave(hands.attach(row, 1, p=5))
    hands.attach(row, 2, p=9)

    assert hands.model.accounts[1].shares[P].start == 9
    assert hands.model.accounts[1].remade


def test_whatever_had_lapsed_is_resumed_when_it_is_attached_again_whoever_has_made_it_anew() -> None:
    """Local 4035, with leases in every run: two rows of one name, of which one had asked before the other was."""
    hands = Hands()
    row, other = hands.row(name="s"), hands.row(name="s")
    hands.leave(hands.attach(row, 1, p=5))
    hands.lapse(row, 1)
    hands.leave(hands.attach(other, 2, p=5))
    hands.attach(row, 2, p=5)

    assert [hands.model.accounts[number].resumed for number in (1, 2)] == [True, True]


def test_acknowledgements_only_rise() -> None:
    hands = Hands()
    hands.log((10, 1))
    reader = hands.attach(hands.row(), p=5)
    hands.acknowledge(reader, p=9)
    hands.acknowledge(reader, p=7)

    assert hands.model.accounts[1].shares[P].acked == 9


def test_an_event_of_a_pubend_found_later_is_owed_once_the_pubend_counts_the_broker() -> None:
    hands = Hands()
    hands.opens(members=[])
    reader = hands.attach(hands.row())
    hands.world.now += 1
    hands.log((10, 1), (20, 2))
    account = hands.model.accounts[1]
    share = hands.model.share(reader, P)
    assert share is not None

    assert hands.model.first_late(account, share, 100) is None
    hands.model.informed(NODE, 0, Enrolled(P, SHB, 15))
    assert hands.model.first_late(account, share, 100) == 20


def test_a_lost_disk_ends_what_was_promised() -> None:
    hands = Hands()
    hands.opens()
    hands.log((10, 1))
    hands.attach(hands.row(), p=5)
    before = hands.model.has_lost_disks, hands.model.histories[P].sound

    hands.observe.wiped(hands.world.brokers[NODE])
    assert before == (False, True)
    assert (hands.model.has_lost_disks, hands.model.histories[P].sound) == (True, False)
    assert not hands.model.accounts[1].exists


def test_who_reads_late_that_it_has_a_subscription_may_have_lost_it_already() -> None:
    """The answer is older than the broker's disk."""
    hands = Hands()
    consumer = hands.subscribe(hands.row())
    hands.observe.served(NODE, consumer.number, Subscribed(consumer.number, 1, 1, b"", True, []))
    hands.observe.wiped(hands.world.brokers[NODE])

    hands.observe.attached(consumer, Attached(1, 1, created=True), hands.positions(p=5))
    assert not hands.model.accounts[1].exists
    hands.attached(consumer, 1, p=5)
    assert hands.model.accounts[1].exists


def test_a_consumer_begins_where_its_application_said() -> None:
    hands = Hands()
    row = hands.row()
    row.token = hands.token(p=7)
    reader = hands.subscribe(row)

    assert begins_of(reader, hands.positions(p=9, q=3)) == hands.positions(p=7, q=3)


def test_chops_of_logs_are_found_among_other_writes() -> None:
    operations: list[Operation] = [Put(f"phb.{P}", 5, b""), Chop(f"pfs/{P}", 5), Chop(f"phb.{P}", 9)]

    assert list(chops(operations)) == [(P, 9)]

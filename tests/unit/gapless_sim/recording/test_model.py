"""The model: what is owed to whom."""

from __future__ import annotations

from msgspec.structs import replace

from gapless.core.client.link.effects import Attached
from gapless.core.network.facts import Enrolled, Interest, PubendMeta
from gapless.core.wire.messages import Subscribed
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P


def test_whatever_had_lapsed_is_resumed_when_it_is_attached_again_whoever_has_made_it_anew() -> None:
    """Local 4035, with leases in every run: two rows of one name, of which one had asked before the other was."""
    fixture = ModelFixture()
    row, other = fixture.row(name="s"), fixture.row(name="s")
    fixture.leave(fixture.attach(row, 1, p=5))
    fixture.lapse(row, 1)
    fixture.leave(fixture.attach(other, 2, p=5))
    fixture.attach(row, 2, p=5)

    assert [fixture.model.accounts[number].resumed for number in (1, 2)] == [True, True]


def test_an_event_of_a_pubend_found_later_is_owed_once_the_pubend_counts_the_broker() -> None:
    fixture = ModelFixture()
    fixture.opens(members=[])
    reader = fixture.attach(fixture.row())
    fixture.world.now += 1
    fixture.log((10, 1), (20, 2))
    account = fixture.model.accounts[1]
    share = fixture.model.share(reader, P)
    assert share is not None

    assert fixture.model.first_late(account, share, 100) is None
    fixture.model.informed(NODE, 0, Enrolled(P, SHB, 15))
    assert fixture.model.first_late(account, share, 100) == 20


def test_who_reads_late_that_it_has_a_subscription_may_have_lost_it_already() -> None:
    """The answer is older than the broker's disk."""
    fixture = ModelFixture()
    consumer = fixture.subscribe(fixture.row())
    fixture.observe.sent(NODE, consumer.number, Subscribed(consumer.number, 1, 1, b"", True, []))
    fixture.observe.wiped(fixture.world.brokers[NODE])

    fixture.observe.attached(consumer, Attached(1, 1, created=True), fixture.positions(p=5))
    assert not fixture.model.accounts[1].exists
    fixture.attached(consumer, 1, p=5)
    assert fixture.model.accounts[1].exists


def test_an_shb_may_give_a_subscription_before_anybody_saw_its_name() -> None:
    """Found by the simulator: what the pubend had let go of before it counted the SHB seemed to have no cause (I5)."""
    fixture = ModelFixture()
    fixture.opens()
    del fixture.model.shb_of[NODE]
    row = fixture.row()
    fixture.attach(row, p=5)
    assert not fixture.model.accounts[row.number].shb

    fixture.observe.wanted(NODE, Interest(SHB, 0, 1, {}, full=True))

    assert fixture.model.accounts[row.number].shb == SHB


def test_what_was_given_up_on_one_volume_is_unreadable_still_on_the_copy_that_a_node_goes_on_with() -> None:
    """Knowledge 2677: nobody has repaired the copy, and its readers wait with good reason."""
    fixture = ModelFixture()
    fixture.opens()
    broker, stream = fixture.world.brokers[NODE], f"phb.{P}"
    fixture.observe.spoilt(broker, stream, [(5, 8, b"")])
    fixture.observe.copied(broker)
    fixture.observe.repaired(broker, [(stream, 5, 8)])
    history = fixture.model.histories[P]
    assert not history.has_hole

    fixture.observe.took_copy(broker)
    assert history.has_hole


def test_a_pubend_that_was_made_anew_while_two_processes_ran_may_be_taken_for_one_of_both() -> None:
    """Delta 100719: a process that hears of the other one does not know whether that had the pubend."""
    fixture = ModelFixture()
    fixture.opens()
    forked = PubendMeta("q@2", NODE, forks=((0, 5),))
    fixture.observe.opened(NODE, forked, {})
    assert not fixture.model.histories["q@2"].forked, "no second process has run"
    fixture.observe.copied(fixture.world.brokers[NODE])
    fixture.observe.opened(NODE, PubendMeta("r@3", NODE), {})
    fixture.observe.opened(NODE, replace(forked, pubend="s@4"), {})

    histories = fixture.model.histories
    assert (histories["r@3"].forked, histories["s@4"].forked) == (False, True)

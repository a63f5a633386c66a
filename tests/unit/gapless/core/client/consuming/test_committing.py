"""A client whose home keeps the position: nothing is handed out before the commit (protocol: committing; J1)."""

from __future__ import annotations

from typing import Any

from gapless.core.client.consuming.items import Delivery, Gap
from gapless.core.client.link import effects as e
from gapless.core.stream.events import Event
from gapless.core.wire import messages as m
from gapless.errors import ConfigurationError
from unit.gapless.client.fake_broker import PUBEND, FakeBroker
from unit.gapless.core.client.harness import World


class Application:
    """One that leaves its position to the broker, in a process of its own."""

    def __init__(self, broker: FakeBroker, instance: str = "one", *, unit: int = 1, **wanted: Any) -> None:
        self.world = World(broker)
        self.world.core = self.world.new_core(("a:1",), instance, 1)
        self.world.start()
        self.unit = unit
        self.reader = self.world.subscribe(commits=True, **wanted)

    @property
    def core(self) -> Any:
        return self.world.core.subscription(self.reader.number)

    def ask(self) -> list[Event]:
        """Asks for the next unit. Returns its events; none if there is none, or if it has to wait."""
        now = self.world.now
        self.world.core.commit(self.reader.number, self.core.end_positions(), self.unit, now)
        self.world.pump()
        while True:
            before = len(self.world.told)
            item = self.world.core.take_unit(self.reader.number, now, self.unit)
            self.world.pump()
            if isinstance(item, Delivery):
                return item.events()
            if item is not None or len(self.world.told) == before:
                return []

    def die(self) -> None:
        """The process is gone."""
        for link in self.world.links:
            self.world.broker.disconnect(link)
        self.world.links.clear()

    @property
    def acknowledged(self) -> int:
        return self.world.broker.subscriptions[1].acknowledged[PUBEND]


def seen(events: list[Event]) -> list[tuple[bytes, int]]:
    return [(event.body, event.delivery_count) for event in events]


def test_an_event_is_handed_out_when_the_one_before_is_committed() -> None:
    broker = FakeBroker()
    application = Application(broker)
    ticks = broker.log(b"a", b"b", b"c")
    assert seen(application.ask()) == [(b"a", 1)]
    broker.withheld = []
    assert application.ask() == []
    assert (application.acknowledged, len(broker.withheld)) == (ticks[0], 1)

    assert application.ask() == []
    assert len(broker.withheld) == 1
    broker.tell(*broker.withheld.pop())
    application.world.pump()
    broker.withheld = None
    assert seen(application.ask()) == [(b"b", 1)]


def test_who_dies_with_an_event_in_hand_gets_it_again_marked_and_nothing_else() -> None:
    broker = FakeBroker()
    application = Application(broker)
    broker.log(b"a", b"b", b"c", b"d")
    assert [seen(application.ask()) for _ in range(2)] == [[(b"a", 1)], [(b"b", 1)]]
    application.die()
    application = Application(broker, "two")
    assert [seen(application.ask()) for _ in range(3)] == [[(b"b", 2)], [(b"c", 1)], [(b"d", 1)]]

    assert [unit.counted for unit in units(broker)] == [True]


def units(broker: FakeBroker) -> list[m.Unit]:
    """What was announced."""
    return [commit.unit for commit in broker.messages(m.Commit) if commit.unit is not None]


def test_what_may_have_been_handed_out_is_taken_durably_before_and_counted() -> None:
    broker = FakeBroker()
    application = Application(broker)
    broker.log(b"poison", b"b")
    application.ask()
    counts = []
    for life in range(4):
        application.die()
        application = Application(broker, f"life {life}")
        broker.withheld = []
        assert application.ask() == []
        broker.tell(*broker.withheld.pop())
        application.world.pump()
        broker.withheld = None
        counts += seen(application.ask())

    # The first delivery was not counted: nothing was durable before it.
    assert counts == [(b"poison", 2), (b"poison", 2), (b"poison", 3), (b"poison", 4)]


def test_a_batch_is_announced_with_the_commit_before_it() -> None:
    broker = FakeBroker()
    application = Application(broker, unit=3)
    ticks = broker.log(*(b"%d" % i for i in range(8)))
    assert [len(application.ask()) for _ in range(4)] == [3, 3, 2, 0]

    commits = broker.messages(m.Commit)
    assert [[each.tick for each in commit.positions] for commit in commits] == [[], [ticks[2]], [ticks[5]], [ticks[7]]]
    announced = [(unit.first, unit.last) for unit in units(broker)]
    assert announced == [(ticks[0], ticks[2]), (ticks[3], ticks[5]), (ticks[6], ticks[7])]


def test_all_of_a_batch_that_was_in_hand_is_marked_and_its_first_event_comes_alone() -> None:
    broker = FakeBroker()
    application = Application(broker, unit=4)
    broker.log(*(b"%d" % i for i in range(8)))
    assert len(application.ask()) == 4
    application.die()
    application = Application(broker, "two", unit=3)

    assert [seen(application.ask()) for _ in range(4)] == [
        [(b"0", 2)],
        [(b"1", 2), (b"2", 2), (b"3", 2)],
        [(b"4", 1), (b"5", 1), (b"6", 1)],
        [(b"7", 1)],
    ]


def test_who_goes_on_after_a_lost_connection_gets_nothing_again_and_nothing_is_marked() -> None:
    broker = FakeBroker()
    application = Application(broker)
    broker.log(b"a", b"b", b"c")
    application.ask()
    application.world.reconnect()

    assert [seen(application.ask()) for _ in range(2)] == [[(b"b", 1)], [(b"c", 1)]]


def test_a_commit_that_a_lost_connection_swallowed_is_durable_with_the_next_attachment() -> None:
    broker = FakeBroker()
    application = Application(broker)
    ticks = broker.log(b"a", b"b")
    application.ask()
    broker.withheld = []
    application.ask()
    application.world.reconnect()

    assert broker.messages(m.Subscribe)[1].acknowledged == [m.Acknowledged(PUBEND, ticks[0], ticks[0])]
    assert seen(application.ask()) == [(b"b", 1)]
    assert len(broker.messages(m.Commit)) == 1


def test_an_announcement_that_was_lost_is_said_again() -> None:
    broker = FakeBroker()
    application = Application(broker, unit=2)
    broker.log(b"a", b"b", b"c", b"d")
    application.ask()
    broker.withheld = []
    assert application.ask() == []
    application.world.cut()
    assert application.ask() == []
    application.world.advance(20)
    assert application.ask() == []
    last = broker.messages(m.Commit)[-1]
    assert last.epoch == 2
    broker.tell(*broker.withheld.pop())
    application.world.pump()

    assert seen(application.ask()) == [(b"c", 1), (b"d", 1)]


def test_what_is_asked_for_without_a_connection_waits_for_one() -> None:
    broker = FakeBroker()
    application = Application(broker)
    broker.log(b"a", b"b")
    application.ask()
    application.world.cut()
    assert application.ask() == []
    application.world.advance(20)

    assert seen(application.ask()) == [(b"b", 1)]


def test_who_leaves_in_order_says_what_it_has_in_hand() -> None:
    broker = FakeBroker()
    application = Application(broker)
    ticks = broker.log(b"a", b"b", b"c")
    application.ask()
    application.ask()
    application.world.core.detach(application.reader.number, application.world.now)
    application.world.pump()
    (detach,) = broker.messages(m.Detach)
    assert detach.handed == [m.Unit(PUBEND, ticks[1], ticks[1])]

    application = Application(broker, "two")
    assert [seen(application.ask()) for _ in range(2)] == [[(b"b", 2)], [(b"c", 1)]]


def test_who_has_nothing_in_hand_leaves_no_doubt() -> None:
    broker = FakeBroker()
    application = Application(broker)
    broker.log(b"a")
    application.ask()
    application.ask()
    application.world.core.detach(application.reader.number, application.world.now)
    application.world.pump()
    assert broker.messages(m.Detach)[0].handed == []

    broker.log(b"b")
    assert seen(Application(broker, "two").ask()) == [(b"b", 1)]


def test_doubt_that_was_found_is_left_to_the_next_one() -> None:
    broker = FakeBroker(pubends=(PUBEND, "q@1"))
    application = Application(broker)
    broker.log(b"a")
    broker.log(b"x", pubend="q@1")
    application.ask()
    application.die()
    application = Application(broker, "two")
    assert len(application.ask()) == 1
    assert application.ask()[0].redelivered
    application.world.core.detach(application.reader.number, application.world.now)
    application.world.pump()

    (detach,) = broker.messages(m.Detach)
    assert detach.cleared == [PUBEND, "q@1"]
    application = Application(broker, "three")
    application.world.core.detach(application.reader.number, application.world.now)
    application.world.pump()
    assert broker.messages(m.Detach)[-1].cleared is None


def test_an_acknowledgement_of_what_is_in_hand_is_committed_all_the_same() -> None:
    broker = FakeBroker()
    application = Application(broker)
    ticks = broker.log(b"a", b"b")
    application.ask()
    application.world.core.acknowledge(application.reader.number, {PUBEND: ticks[0]}, application.world.now)
    application.world.advance(20)
    assert seen(application.ask()) == [(b"b", 1)]

    (commit,) = broker.messages(m.Commit)
    assert commit.positions == [m.Acknowledged(PUBEND, ticks[0], ticks[0])]


def test_silence_alone_is_not_committed() -> None:
    broker = FakeBroker()
    application = Application(broker, silence=True)
    broker.say_silence()
    application.world.pump()
    for _ in range(3):
        application.ask()

    assert broker.messages(m.Commit) == []


def test_a_gap_is_committed_before_what_follows_it() -> None:
    broker = FakeBroker()
    broker.log(b"lost")
    application = Application(broker, start=m.StartAt.EARLIEST, unit=1)
    application.die()
    broker.release(broker.streams[PUBEND].newest)
    broker.log(b"a")
    application = Application(broker, "two")
    item = application.world.core.take_unit(application.reader.number, application.world.now)
    assert isinstance(item, Gap)
    broker.withheld = []

    assert application.ask() == []
    assert len(broker.withheld) == 1


def test_a_broker_that_knows_no_commits_is_refused() -> None:
    broker = FakeBroker()
    broker.knows_commits = False
    application = Application(broker)

    (failed,) = application.world.effects(e.Failed)
    assert isinstance(failed.error, ConfigurationError)


class Gatherer(Application):
    """One that acknowledges by hand what it was handed, and has it come again."""

    def __init__(self, broker: FakeBroker, instance: str = "one") -> None:
        super().__init__(broker, instance, gathers=True, window_events=100)

    def take(self, count: int = 1) -> list[tuple[bytes, int]]:
        """Takes so many events one by one, without an acknowledgement between them."""
        events: list[Event] = []
        for _ in range(20):
            item = self.world.core.take_unit(self.reader.number, self.world.now, 1)
            self.world.pump()
            if isinstance(item, Delivery):
                events += item.events()
            if len(events) == count:
                break
        return seen(events)

    def recover_while_cut(self) -> None:
        """It has everything come again that is not acknowledged, while its link is down: its broker is not told."""
        self.world.cut()
        self.reader.number = self.world.core.recover(self.reader.number, self.core.end_positions(), self.world.now)
        self.world.advance(20)


def test_who_recovers_without_a_link_and_was_handed_nothing_has_nothing_marked() -> None:
    """Found by the simulator (J5): its broker heard of no end, and took it for somebody who may have died."""
    broker = FakeBroker()
    application = Gatherer(broker)
    application.recover_while_cut()
    broker.log(b"a", b"b")

    assert application.take(2) == [(b"a", 1), (b"b", 1)]
    assert not application.core.committing.found_doubt
    application.world.core.detach(application.reader.number, application.world.now)
    application.world.pump()
    assert broker.messages(m.Detach)[-1].cleared is None


def test_who_recovers_without_a_link_has_marked_what_it_was_handed_itself() -> None:
    broker = FakeBroker()
    application = Gatherer(broker)
    broker.log(b"a", b"b", b"c")
    application.take(2)
    application.recover_while_cut()

    assert application.take(3) == [(b"a", 2), (b"b", 2), (b"c", 1)]
    assert units(broker)[-1].counted, "an attempt that may be the second one counts"


def test_what_comes_in_place_of_events_that_were_lost_meanwhile_is_not_marked() -> None:
    """Found by the simulator (J5): it was handed two that are lost, and nobody was handed the one behind the gap."""
    broker = FakeBroker()
    application = Gatherer(broker)
    ticks = broker.log(b"a", b"b")
    application.take(2)
    for _ in range(2):  # the second time it has been handed nothing but the gap
        application.recover_while_cut()
        broker.release(ticks[-1])
    broker.log(b"c")

    assert application.take(1) == [(b"c", 1)]
    assert application.core.committing.found_doubt


def test_who_recovers_without_a_link_keeps_the_doubt_that_it_had_found() -> None:
    broker = FakeBroker()
    Gatherer(broker, "another").die()
    application = Gatherer(broker)
    application.recover_while_cut()
    broker.log(b"a", b"b")

    assert application.take(2) == [(b"a", 2), (b"b", 1)]


def test_who_recovers_without_a_link_believes_its_broker_if_somebody_was_there_meanwhile() -> None:
    broker = FakeBroker()
    application = Gatherer(broker)
    broker.subscriptions[1].epoch += 1
    application.recover_while_cut()
    broker.log(b"a", b"b")

    assert application.take(2) == [(b"a", 2), (b"b", 1)]

"""The commit of a transaction: one write, and what its application is told (protocol: transactions)."""

from __future__ import annotations

from typing import Any

from gapless.core.client.consuming.items import Delivery
from gapless.core.client.link import effects as e
from gapless.core.client.transacting import ENLISTED_MAX, Fate, Transacting
from gapless.core.stream.columns import EventColumns
from gapless.core.wire import messages as m
from gapless.core.wire.tokens import split_consumed
from gapless.errors import PublishUncertainError
from unit.gapless.client.fake_broker import PUBEND, FakeBroker
from unit.gapless.core.client.harness import World, columns

NOTHING = EventColumns(0, b"", b"")


class Session:
    """A transacted session in a process of its own."""

    def __init__(self, broker: FakeBroker, instance: str = "one", *names: str) -> None:
        self.world = World(broker)
        self.world.core = self.world.new_core(("a:1",), instance, 1)
        self.world.start()
        self.readers = [self.world.subscribe(name=name, commits=True, **TAKEOVER) for name in names or ("s",)]
        self.publisher = self.world.open("outputs")
        self.commit: Transacting | None = None

    def take(self, reader: int = 0) -> list[bytes]:
        """Everything that is there."""
        found: list[bytes] = []
        self.world.pump()
        while (item := self.world.core.take(self.readers[reader].number, self.world.now)) is not None:
            if isinstance(item, Delivery):
                found += [event.body for event in item.events()]
        self.world.pump()
        return found

    def begin(self, *outputs: bytes, readers: tuple[int, ...] = (0,)) -> Transacting:
        """Commits what was taken, and these outputs."""
        positions = {}
        for reader in readers:
            number = self.readers[reader].number
            core = self.world.core.subscription(number)
            positions[number] = {} if core is None else core.end_positions()
        alone = not outputs and len(positions) == 1
        events = columns(*outputs) if outputs else NOTHING
        self.commit = Transacting(self.world.core, positions, events, None if alone else self.publisher)
        return self.commit

    def go_on(self) -> Fate:
        """Lets everything happen that can."""
        assert self.commit is not None
        for _ in range(8):
            self.commit.go_on(self.world.now)
            self.world.pump()
            for effect in self.world.told:
                if self.commit.fate is not Fate.OPEN:
                    break
                if isinstance(effect, e.Receipted) and effect.ticket == self.commit.ticket:
                    self.commit.on_receipted(effect, self.world.now)
                elif isinstance(effect, e.NotPublished) and effect.ticket == self.commit.ticket:
                    self.commit.on_not_published(effect)
            self.world.pump()
        return self.commit.fate


TAKEOVER: dict[str, Any] = {"in_use": m.InUse.TAKEOVER}


def take_over(broker: FakeBroker, session: Session) -> None:
    """Another consumer takes the subscription over."""
    subscription = broker.subscriptions[1]
    assert subscription.session is not None
    broker.tell(subscription.session, m.Detached(1, m.Code.TAKEN_OVER, "taken over"))
    subscription.session = None
    session.world.pump()


def published(broker: FakeBroker) -> list[m.Publish]:
    return broker.messages(m.Publish)


def test_inputs_of_one_subscription_are_committed_at_its_home() -> None:
    broker = FakeBroker()
    session = Session(broker)
    ticks = broker.log(b"a", b"b")
    assert session.take() == [b"a", b"b"]
    session.begin()

    assert session.go_on() is Fate.COMMITTED
    assert broker.subscriptions[1].acknowledged[PUBEND] == ticks[-1]
    assert published(broker) == []


def test_inputs_and_outputs_are_one_batch_behind_an_enlisting() -> None:
    broker = FakeBroker()
    session = Session(broker)
    (tick,) = broker.log(b"a")
    session.take()
    session.begin(b"x", b"y")

    assert session.go_on() is Fate.COMMITTED
    (batch,) = published(broker)
    (consumed,) = split_consumed(batch.tokens)
    assert (batch.events.count, consumed.key, consumed.epoch) == (2, "here/1", 1)
    assert consumed.token.ticks[PUBEND] == tick
    assert [each.enlists for each in broker.messages(m.Commit)] == [PUBEND]
    session.world.advance(1)
    assert broker.messages(m.Acknowledge)[-1].positions[0].tick == tick


def test_a_pubend_is_enlisted_once() -> None:
    broker = FakeBroker()
    session = Session(broker)
    for body in (b"a", b"b"):
        broker.log(body)
        session.take()
        session.begin(b"x")
        assert session.go_on() is Fate.COMMITTED

    assert len(broker.messages(m.Commit)) == 1


def test_nothing_is_published_before_the_pubend_is_enlisted() -> None:
    broker = FakeBroker()
    session = Session(broker)
    broker.log(b"a")
    session.take()
    broker.withheld = []
    session.begin(b"x")
    assert session.go_on() is Fate.OPEN
    assert published(broker) == []

    broker.tell(*broker.withheld.pop())
    broker.withheld = None
    session.world.pump()
    assert session.go_on() is Fate.COMMITTED


def test_inputs_of_two_subscriptions_are_one_batch_without_events() -> None:
    broker = FakeBroker()
    session = Session(broker, "one", "s", "t")
    broker.log(b"a")
    session.take(0)
    session.take(1)
    session.begin(readers=(0, 1))

    assert session.go_on() is Fate.COMMITTED
    (batch,) = published(broker)
    assert (batch.events.count, len(split_consumed(batch.tokens))) == (0, 2)


def test_outputs_alone_need_no_subscription() -> None:
    broker = FakeBroker()
    session = Session(broker)
    session.begin(b"x", readers=())

    assert session.go_on() is Fate.COMMITTED
    assert published(broker)[0].tokens == b""


def test_what_another_consumer_has_claimed_is_rolled_back() -> None:
    broker = FakeBroker()
    session = Session(broker)
    broker.log(b"a")
    session.take()
    session.begin(b"x")
    assert session.go_on() is Fate.COMMITTED
    broker.log(b"b")
    session.take()
    session.begin(b"y")
    broker.subscriptions[1].claim += 1

    assert session.go_on() is Fate.ROLLED_BACK
    assert "claimed anew" in session.commit.reason  # type: ignore[union-attr]


def test_who_lost_the_subscription_before_anything_was_sent_has_rolled_back() -> None:
    broker = FakeBroker()
    session = Session(broker)
    broker.log(b"a")
    session.take()
    take_over(broker, session)
    session.begin(b"x")

    assert session.go_on() is Fate.ROLLED_BACK
    assert published(broker) == []


def test_a_commit_that_was_not_answered_before_a_takeover_is_in_doubt() -> None:
    broker = FakeBroker()
    session = Session(broker)
    broker.log(b"a")
    session.take()
    broker.withheld = []
    session.begin()
    assert session.go_on() is Fate.OPEN

    take_over(broker, session)
    assert session.go_on() is Fate.IN_DOUBT


def test_who_closes_before_the_answer_is_in_doubt() -> None:
    broker = FakeBroker()
    session = Session(broker)
    broker.log(b"a")
    session.take()
    commit = session.begin(b"x")
    session.go_on()
    assert commit.fate is Fate.COMMITTED
    broker.log(b"b")
    session.take()
    broker.silent = True
    commit = session.begin(b"y")
    assert session.go_on() is Fate.OPEN
    assert commit.is_sent

    commit.give_up(PublishUncertainError("closed"))
    assert commit.fate is Fate.IN_DOUBT


def test_a_subscription_has_only_so_many_pubends_with_its_position() -> None:
    broker = FakeBroker()
    session = Session(broker)
    broker.subscriptions[1].enlisted = {f"p{number}@1": None for number in range(ENLISTED_MAX)}
    session.world.reconnect()
    broker.log(b"a")
    session.take()
    commit = session.begin(b"x")

    assert session.go_on() is Fate.ROLLED_BACK
    assert "fewer pubends" in commit.reason

"""Publishing where the pubend is, on two nodes with one log (protocol: publishing-at-the-host)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gapless.core.client import Credentials
from gapless.core.client.link import effects as e
from gapless.core.client.publishing.publisher import PublisherPhase
from gapless.core.wire import messages as m
from unit.gapless.client.fake_broker import PUBEND, FakeBroker
from unit.gapless.core.client.harness import World, columns, joined

HERE, THERE = "a:1", "b:1"


class TwoNodes(World):
    """The node `a` that the client comes to first, and the node `b` that hosts the pubend; both take its batches."""

    def __init__(self, *addresses: str, credentials: Callable[[], Credentials] | None = None) -> None:
        self.brokers = {HERE: FakeBroker(), THERE: FakeBroker(), "c:1": FakeBroker()}
        for address, broker in self.brokers.items():
            broker.node, broker.host = address[0], "b"
            broker.streams, broker.names = self.brokers[HERE].streams, self.brokers[HERE].names
            broker.forgotten = self.brokers[HERE].forgotten
        super().__init__(self.brokers[HERE], addresses=addresses or (HERE, THERE), credentials=credentials)
        self.start()

    def at(self, address: str) -> FakeBroker:
        return self.brokers[address]

    def published(self, address: str) -> list[int]:
        """The first sequences of the batches that a node was given."""
        return [batch.first for batch in self.brokers[address].messages(m.Publish)]

    @property
    def logged(self) -> list[bytes]:
        stream = self.broker.streams[PUBEND]
        return [event[-length:] for event, length in zip(stream.events, stream.body_lengths, strict=True)]


def test_a_publisher_goes_to_the_node_that_hosts_its_pubend() -> None:
    world = TwoNodes()
    publisher = world.open()
    tickets = [world.publish(publisher, b"x"), world.publish(publisher, b"y")]

    assert world.dialled == [HERE, THERE]
    assert (world.published(HERE), world.published(THERE)) == ([], [1, 2])
    assert list(world.receipts(publisher)) == tickets
    assert [opened.attempt for opened in world.brokers[THERE].messages(m.OpenPublisher)] == [2]
    assert world.effects(e.Disconnected) == []
    assert len(world.effects(e.Connected)) == 1, "the connection is with its home"


def test_the_home_hears_that_it_is_over_there_only_when_it_is_open_elsewhere() -> None:
    """A publisher without a name would be forgotten, and what it sent uncertain."""
    world = TwoNodes()
    world.brokers[THERE].put_off = [m.OpenPublisher]
    publisher = world.open("~1")
    assert world.brokers[HERE].messages(m.ClosePublisher) == []
    world.brokers[HERE].forget = lambda _: None  # type: ignore[assignment,method-assign]  # the host knows better

    world.advance(1)
    ticket = world.publish(publisher, b"x")

    assert len(world.brokers[HERE].messages(m.ClosePublisher)) == 1
    assert list(world.receipts(publisher)) == [ticket]
    assert world.published(THERE) == [1]


def test_what_is_unanswered_when_it_moves_is_logged_once() -> None:
    world = TwoNodes()
    world.unreachable.add(THERE)
    publisher = world.open()
    first = world.publish(publisher, b"0")
    world.brokers[HERE].silent = True
    second = world.publish(publisher, b"1")
    assert world.published(HERE) == [1, 2]

    world.unreachable.clear()
    world.advance(1)

    assert world.published(THERE) == [2]
    assert world.logged == [b"0", b"1"]
    assert list(world.receipts(publisher)) == [first, second]


def test_a_lost_session_sends_its_publishers_home_and_they_come_back() -> None:
    world = TwoNodes()
    publisher = world.open()
    world.publish(publisher, b"0")
    world.unreachable.add(THERE)
    world.lose(THERE)
    world.publish(publisher, b"1")
    assert world.published(HERE) == [2]
    assert world.core.reaches(publisher)

    world.unreachable.clear()
    world.advance(60)
    world.publish(publisher, b"2")

    assert world.published(THERE) == [1, 3]
    assert world.logged == [b"0", b"1", b"2"]
    assert [opened.attempt for opened in world.brokers[THERE].messages(m.OpenPublisher)] == [2, 4]


def test_answers_that_were_lost_with_the_session_come_through_the_home() -> None:
    """The host has logged the batch: at home it is recognised."""
    world = TwoNodes()
    publisher = world.open()
    ticket = world.core.publish(publisher, columns(b"0"), (), world.now)
    for effect in world.core.take_effects():
        if isinstance(effect, e.SendFrames):
            world.brokers[THERE].frames(effect.link, map(joined, effect.payloads))
    assert world.logged == [b"0"]

    world.unreachable.add(THERE)
    world.lose(THERE)

    assert world.logged == [b"0"]
    assert list(world.receipts(publisher)) == [ticket]
    assert world.published(HERE) == [1]


def test_the_loss_of_the_home_does_not_concern_it() -> None:
    world = TwoNodes()
    publisher = world.open()
    world.unreachable.add(HERE)
    world.lose(HERE)
    world.publish(publisher, b"0")

    assert not world.core.connected
    assert world.core.reaches(publisher)
    assert world.published(THERE) == [1]


def test_each_address_is_asked_once_until_the_host_is_found() -> None:
    world = TwoNodes(HERE, "c:1", THERE)
    publishers = [world.open("one"), world.open("two")]
    for publisher in publishers:
        world.publish(publisher, b"x")

    assert world.dialled == [HERE, "c:1", THERE]
    assert world.published(THERE) == [1, 1]
    assert sorted(world.links.values()) == [HERE, THERE], "nobody stays at a node that hosts nothing of his"


@pytest.mark.parametrize("addresses", [(HERE,), (HERE, "c:1")])
def test_without_an_address_of_the_host_it_publishes_through_the_home(addresses: tuple[str, ...]) -> None:
    world = TwoNodes(*addresses)
    publisher = world.open()
    world.publish(publisher, b"x")
    world.advance(300)
    world.open("other")

    assert world.published(HERE) == [1]
    assert world.dialled == list(addresses)


def test_an_address_where_nobody_answers_is_asked_more_and_more_seldom() -> None:
    world = TwoNodes()
    world.unreachable.add(THERE)
    publisher = world.open()
    world.publish(publisher, b"x")
    world.advance(600)

    assert world.published(HERE) == [1]
    assert 8 <= world.dialled.count(THERE) <= 28
    assert world.effects(e.Unreachable) == []


def test_a_node_that_takes_less_than_the_home_is_left_alone() -> None:
    world = TwoNodes()
    world.brokers[THERE].event_bytes //= 2
    publisher = world.open()
    world.publish(publisher, b"x")

    assert world.published(HERE) == [1]
    assert list(world.links.values()) == [HERE]


def test_a_publisher_that_is_over_is_closed_at_its_host() -> None:
    world = TwoNodes()
    publisher = world.open()
    world.core.close_publisher(publisher, world.now)
    world.pump()

    assert len(world.brokers[THERE].messages(m.ClosePublisher)) == 1
    assert world.core.publisher(publisher) is None
    assert world.failure(publisher) is not None


def test_closing_the_connection_ends_all_sessions() -> None:
    world = TwoNodes()
    publisher = world.open()
    world.brokers[THERE].silent = True
    ticket = world.publish(publisher, b"x")
    world.core.close(world.now)
    effects = world.core.take_effects()

    assert {effect.link for effect in effects if isinstance(effect, e.CloseLink)} == {1, 1 << 32 | 1}
    assert isinstance(effects[-1], e.Closed)
    assert [effect.ticket for effect in effects if isinstance(effect, e.NotPublished)] == [ticket]
    assert world.core.deadline() is None


def test_the_phase_is_that_of_the_session_it_is_in() -> None:
    world = TwoNodes()
    publisher = world.open()
    core = world.core.publisher(publisher)

    assert core is not None
    assert core.phase is PublisherPhase.OPEN
    assert publisher not in world.core.publishers

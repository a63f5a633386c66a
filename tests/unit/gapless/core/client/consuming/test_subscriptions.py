"""Which subscription a message is for, and who is in whose way."""

from __future__ import annotations

import pytest

from gapless.core.client import SubscribeOptions
from gapless.core.client.link import effects as e
from gapless.core.wire import messages as m
from gapless.core.wire.codec import encode
from gapless.errors import SubscriptionTakenOverError
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.core.client.harness import World


def test_a_takeover_within_one_connection_ends_the_older() -> None:
    """Both have the broker's id in common: what is meant for the newer must not reach the older."""
    world = World().start()
    first = world.subscribe()
    world.log(b"a")
    second = world.subscribe(in_use=m.InUse.TAKEOVER)
    world.broker.log(b"b")

    assert isinstance(world.failure(first.number), SubscriptionTakenOverError)
    assert second.take_all() == [b"a", b"b"]
    assert world.core.take(first.number, world.now) is None


def test_one_that_waits_gets_it_when_it_is_let_go() -> None:
    world = World().start()
    first = world.subscribe()
    second = world.subscribe(in_use=m.InUse.WAIT)
    world.broker.log(b"a")
    assert first.take_all() == [b"a"]
    world.core.acknowledge(first.number, first.position, world.now)
    world.core.detach(first.number, world.now)
    world.broker.log(b"b")

    assert second.take_all() == [b"b"]
    assert world.failure(first.number) is None


def test_one_given_up_before_the_answer_is_let_go_when_it_comes() -> None:
    world = World().start()
    first = world.core.subscribe(SubscribeOptions(("#",), "s"), world.now)
    (send,) = [effect for effect in world.core.take_effects() if isinstance(effect, e.SendFrames)]
    world.core.detach(first, world.now)
    world.sends.append(send)
    world.broker.frames(1, send.payloads)  # type: ignore[arg-type]
    world.pump()

    assert world.broker.subscriptions[1].session is None
    assert len(world.broker.messages(m.Detach)) == 1


@pytest.mark.parametrize("in_use", list(m.InUse))
def test_one_given_up_is_not_in_the_way_of_the_next(in_use: m.InUse) -> None:
    world = World().start()
    first = world.core.subscribe(SubscribeOptions(("#",), "s"), world.now)
    world.core.detach(first, world.now)
    reader = world.subscribe("s", in_use=in_use)
    world.broker.log(b"a")

    assert reader.take_all() == [b"a"]
    assert world.failure(reader.number) is None


def test_all_requests_of_a_consumer_say_when_it_was_asked_for() -> None:
    """Two consumers of one process are told apart by that, however often each is asked for again by itself."""
    world = World().start()
    first = world.subscribe()
    second = world.subscribe("other")
    world.reconnect()
    world.core.recover(first.number, {}, world.now)
    world.pump()

    said = world.broker.messages(m.Subscribe)
    places = {each.name: {other.asked for other in said if other.name == each.name} for each in said}
    assert [len(places["s"]), len(places["other"])] == [1, 1]
    assert max(places["s"]) < max(places["other"])
    assert len({each.attempt for each in said}) == len(said) == 5
    assert second.number != first.number


def test_silence_is_for_those_it_names_or_for_all() -> None:
    world = World().start()
    first, second = world.subscribe("one"), world.subscribe("two")
    session = world.broker.session
    world.broker.log(b"names the pubend")
    for reader in (first, second):
        reader.take_all()
    newest = world.broker.streams[PUBEND].newest
    world.broker.tell(session, m.DeliverSilence(0, newest + 5, [2, 99]))
    world.pump()
    first.take()
    second.take()
    assert (first.position, second.position) == ({PUBEND: newest}, {PUBEND: newest + 5})

    world.broker.tell(session, m.DeliverSilence(0, newest + 7, None))
    world.pump()
    assert first.position == second.position == {PUBEND: newest + 7}


def test_what_comes_for_one_that_is_gone_means_nothing() -> None:
    world = World().start()
    reader = world.subscribe()
    world.broker.log(b"a")
    reader.take_all()
    world.core.detach(reader.number, world.now)
    session = world.broker.session
    world.broker.tell(session, m.DeliverSilence(0, BASE * 2, [1]))
    world.broker.tell(session, m.DeliverGap(1, 0, 1, 2, ""))
    world.broker.tell(session, m.Detached(1, m.Code.TAKEN_OVER, ""))
    world.broker.tell(session, m.RequestFailed(reader.number, m.Code.IN_USE, ""))
    world.pump()

    assert world.core.connected
    assert world.failure(reader.number) is None


def test_numbers_of_pubends_are_a_sessions_own() -> None:
    world = World().start()
    reader = world.subscribe()
    world.broker.log(b"a")
    reader.take_all()
    world.reconnect()
    session = world.broker.session
    world.broker.tell_raw(session.link, encode(session.number, m.DeliverSilence(0, BASE * 2, None)))
    world.pump()

    assert "never named" in world.effects(e.CloseLink)[-1].reason


@pytest.mark.parametrize(
    "answer",
    [
        m.Subscribed(1, 5, 1, b"", False, []),
        m.Subscribed(2, 1, 1, b"", False, []),
    ],
    ids=["attached twice", "one id for two"],
)
def test_an_answer_that_cannot_be_ends_the_link(answer: m.Subscribed) -> None:
    world = World().start()
    first = world.subscribe("one")
    assert first.number == 1
    world.core.subscribe(SubscribeOptions(("#",), "two"), world.now)
    world.core.take_effects()
    world.broker.tell(world.broker.session, answer)
    world.pump()

    assert not world.core.connected
    world.advance(5)
    world.broker.log(b"a")
    assert first.take_all() == [b"a"]


def test_acknowledgements_of_several_go_together() -> None:
    world = World().start()
    readers = [world.subscribe(name) for name in ("one", "two")]
    (tick,) = world.broker.log(b"a")
    for reader in readers:
        reader.take_all()
        world.core.acknowledge(reader.number, reader.position, world.now)
    before = len(world.sends)
    world.advance(0)

    assert len(world.sends) == before + 1
    assert [sub.acknowledged for sub in world.broker.subscriptions.values()] == [{PUBEND: tick}] * 2


def test_commands_for_one_that_is_gone_do_nothing() -> None:
    world = World().start()
    reader = world.subscribe()
    for _ in range(2):
        world.core.detach(reader.number, world.now)
    world.core.drain(reader.number, world.now)
    world.core.acknowledge(reader.number, {PUBEND: BASE + 1}, world.now)
    world.advance(1)

    assert world.core.take(reader.number, world.now) is None
    assert world.broker.messages(m.Acknowledge) == []

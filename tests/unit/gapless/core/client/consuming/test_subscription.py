"""A subscription through reconnects (protocol: delivery, credit; T11, T26)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.client import Gap, Silence
from gapless.core.client.link import effects as e
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from gapless.errors import (
    ConfigurationError,
    InvalidSelectorError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
)
from unit.gapless.client.fake_broker import BASE, PUBEND, FakeBroker
from unit.gapless.core.client.harness import Reader, World


def consuming(name: str | None = "s", **wanted: Any) -> tuple[World, Reader]:
    world = World().start()
    return world, world.subscribe(name, **wanted)


def test_events_arrive_in_order_once() -> None:
    world, reader = consuming()
    world.broker.log(*(b"%d" % i for i in range(10)))

    assert reader.take_all() == [b"%d" % i for i in range(10)]
    assert reader.position == {PUBEND: world.broker.streams[PUBEND].newest}
    attached = world.answer(reader.number)
    assert (attached.sid, attached.created) == (1, True)


def test_arrived_is_said_once_until_nothing_is_found() -> None:
    world, reader = consuming()
    for i in range(5):
        world.log(b"%d" % i)
    assert len(world.effects(e.Arrived)) == 1

    reader.take_all()
    world.log(b"x")
    assert len(world.effects(e.Arrived)) == 2


def test_the_position_stands_behind_what_was_handed_out_not_what_arrived() -> None:
    world, reader = consuming()
    ticks = world.log(b"a", b"b", b"c")
    core = reader.core
    assert core.positions() == {PUBEND: BASE}

    reader.take(2)
    assert core.positions() == {PUBEND: BASE}
    assert core.end_positions() == {PUBEND: ticks[1]}

    reader.take(2)
    assert core.positions() == {PUBEND: ticks[1]}
    assert core.end_positions() == {PUBEND: ticks[2]}


def test_a_reconnect_resumes_after_what_arrived_by_id_and_never_creates() -> None:
    world, reader = consuming(in_use=m.InUse.TAKEOVER, start=m.StartAt.EARLIEST)
    ticks = world.log(b"a", b"b", b"c")
    reader.take(1)
    world.reconnect()
    world.broker.log(b"d")

    assert reader.take_all() == [b"a", b"b", b"c", b"d"]
    first, again = world.broker.messages(m.Subscribe)
    assert (first.sid, first.generation, first.positions, first.start) == (0, 0, None, m.StartAt.EARLIEST)
    assert (again.sid, again.generation) == (1, 1001)
    assert again.positions == [m.Position(PUBEND, ticks[2])]
    assert (again.token_sid, again.token_generation, again.token_seal) == (1, 1001, b"seal of 1")
    assert again.in_use is m.InUse.ERROR
    assert again.credit_events == first.credit_events - 2


def test_a_subscription_that_was_removed_meanwhile_is_not_created_again() -> None:
    world, reader = consuming()
    world.log(b"a", b"b")
    world.cut()
    world.broker.subscriptions.clear()
    world.advance(5)

    assert isinstance(world.failure(reader.number), SubscriptionNotFoundError)
    assert reader.take() is False
    assert world.broker.subscriptions == {}


def test_another_generation_is_another_subscription() -> None:
    world, reader = consuming()
    world.cut()
    world.broker.subscriptions[1].generation += 1
    world.advance(5)

    assert isinstance(world.failure(reader.number), SubscriptionNotFoundError)


@pytest.mark.parametrize(
    ("code", "error"),
    [(m.Code.TAKEN_OVER, SubscriptionTakenOverError), (m.Code.UNSUBSCRIBED, SubscriptionNotFoundError)],
)
def test_detached_drops_the_buffer(code: m.Code, error: type[Exception]) -> None:
    world, reader = consuming()
    world.log(b"a", b"b")
    world.broker.tell(world.broker.session, m.Detached(1, code, "because"))
    world.pump()

    assert isinstance(world.failure(reader.number), error)
    assert reader.take() is False
    world.log(b"c")
    assert world.core.connected


def test_a_consumer_that_came_while_we_were_away_has_taken_it_over() -> None:
    world, reader = consuming(in_use=m.InUse.WAIT)
    world.cut()
    other = world.broker
    other.connect(99)
    other._on_hello(other.session, m.Hello(1, "", "client", "another"))
    other.subscriptions[1].session = other.session
    world.advance(5)

    assert isinstance(world.failure(reader.number), SubscriptionTakenOverError)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"in_use": m.InUse.ERROR}, SubscriptionInUseError),
        ({"selector": "x = 1", "in_use": m.InUse.TAKEOVER}, SubscriptionMismatchError),
    ],
)
def test_a_refused_subscription_says_why_and_leaves_the_other_alone(
    wanted: dict[str, Any], error: type[Exception]
) -> None:
    world = World().start()
    first = world.subscribe()
    second = world.subscribe(**wanted)

    assert isinstance(world.failure(second.number), error)
    world.broker.log(b"a")
    assert first.take_all() == [b"a"]


def test_the_error_of_a_selector_shows_the_place() -> None:
    world, reader = consuming()
    number = reader.number + 1
    world.core.subscribe(world.core.subscription(reader.number).wanted, world.now)  # type: ignore[union-attr]
    world.core.take_effects()
    world.broker.tell(world.broker.session, m.RequestFailed(number, m.Code.INVALID_SELECTOR, "what?", "a ==", 3))
    world.pump()

    error = world.failure(number)
    assert isinstance(error, InvalidSelectorError)
    assert (error.expression, error.position) == ("a ==", 3)


def test_a_subscribe_that_is_put_off_is_repeated_and_said_once() -> None:
    world = World().start()
    world.broker.put_off = [m.Subscribe] * 3
    reader = world.subscribe()
    world.advance(5)
    world.broker.log(b"a")

    assert reader.take_all() == [b"a"]
    assert len(world.effects(e.Notice)) == 1


def test_a_session_that_ends_while_one_is_put_off_does_not_ask_twice() -> None:
    world = World().start()
    world.broker.put_off = [m.Subscribe]
    world.subscribe()
    world.cut()
    world.advance(10)

    assert len(world.broker.messages(m.Subscribe)) == 2


def test_one_that_is_not_durable_comes_back_as_a_new_one_where_the_old_one_was() -> None:
    world, reader = consuming(None)
    ticks = world.broker.log(b"a", b"b")
    assert reader.take_all() == [b"a", b"b"]
    world.cut()
    world.broker.log(b"c")
    world.advance(5)
    world.broker.log(b"d")

    assert reader.take_all() == [b"a", b"b", b"c", b"d"]
    again = world.broker.messages(m.Subscribe)[1]
    assert (again.sid, again.start, again.positions) == (0, m.StartAt.TOKEN, [m.Position(PUBEND, ticks[1])])
    core = reader.core
    assert (core.sid, list(core.former_sids)) == (2, [("", 1)])


@pytest.mark.parametrize(("start", "wall"), [(m.StartAt.TIME, 1_800_000_000_000), (m.StartAt.LATEST, 0)])
def test_one_that_is_not_durable_says_again_at_which_time_it_began(start: m.StartAt, wall: int) -> None:
    world = World().start()
    world.subscribe(None, start=start, start_wall=1_800_000_000_000)
    world.cut()
    world.advance(5)

    assert [asked.start_wall for asked in world.broker.messages(m.Subscribe)] == [wall, wall]


def test_credit_is_never_exceeded_and_always_given_back() -> None:
    broker = FakeBroker()
    broker.batch_max = 50
    world = World(broker).start()
    reader = world.subscribe(window_events=8, window_bytes=100_000)
    world.log(*(b"%d" % i for i in range(100)))
    core = reader.core
    assert core.buffered_events == 8

    assert len(reader.take_all()) == 100
    assert broker.subscriptions[1].credit_events > 6


def test_what_is_taken_while_it_attaches_makes_room_again() -> None:
    """It asked with a buffer that was full; nobody grants what was taken before the answer came (hostile 1744)."""
    world, reader = consuming(window_events=2)
    world.log(b"a", b"b")
    attach = world.broker._attach

    def after_a_while(session: Any, message: m.Subscribe, sub: Any, *, created: bool) -> None:
        assert message.credit_events == 0
        while reader.take():
            pass
        attach(session, message, sub, created=created)

    world.broker._attach = after_a_while  # type: ignore[method-assign]
    world.reconnect()
    world.broker.log(b"c")

    assert reader.take_all() == [b"a", b"b", b"c"]


def test_credit_in_bytes_is_kept_exactly_on_both_sides() -> None:
    """A difference of a few bytes per delivery would starve the subscription after a while."""
    world, reader = consuming(window_bytes=2000, window_events=1000)
    for i in range(500):
        world.broker.log(b"x" * (i % 90))
        reader.take_all()

    core = reader.core
    sub = world.broker.subscriptions[1]
    assert (sub.credit_events, sub.credit_bytes) == (core._credit_events, core._credit_bytes)
    assert sub.credit_bytes > 1500
    assert len(reader.bodies) == 500


def test_an_event_larger_than_the_window_passes() -> None:
    world, reader = consuming(window_bytes=1000)
    world.broker.log(b"a", b"x" * 5000, b"y" * 3000, b"b")

    assert [len(body) for body in reader.take_all()] == [1, 5000, 3000, 1]


def test_more_than_the_credit_ends_the_link() -> None:
    world, reader = consuming(window_events=4)
    world.broker.subscriptions[1].credit_events = 1000
    world.log(*(b"%d" % i for i in range(9)))

    assert "more than the credit" in world.effects(e.CloseLink)[0].reason
    world.advance(5)
    assert reader.take_all() == [b"%d" % i for i in range(9)]


def test_events_that_came_before_are_not_handed_out_again() -> None:
    world, reader = consuming()
    world.log(b"a", b"b")
    world.broker.subscriptions[1].position[PUBEND] = BASE
    world.broker.log(b"c")
    world.broker.subscriptions[1].position[PUBEND] = BASE
    world.broker.deliver()

    assert reader.take_all() == [b"a", b"b", b"c"]


def test_a_delivery_out_of_order_ends_the_link() -> None:
    world, reader = consuming()
    world.log(b"a")
    stream = world.broker.streams[PUBEND]
    good = list(stream.ticks)
    stream.ticks += [stream.newest + 2 * STEP, stream.newest + STEP]
    stream.events += stream.events * 2
    stream.body_lengths += stream.body_lengths * 2
    stream.headers += stream.headers * 2
    world.broker.deliver()
    world.pump()

    assert "not in tick order" in world.effects(e.CloseLink)[0].reason
    assert reader.take_all() == [b"a"]
    assert reader.position == {PUBEND: good[0]}


def test_silence_moves_the_position_and_takes_no_room() -> None:
    world, reader = consuming()
    for i in range(1000):
        upto = world.broker.say_silence(BASE + i + 1)
    world.pump()

    core = reader.core
    assert core.positions() == {PUBEND: upto}
    assert world.effects(e.Arrived) == []
    assert reader.take() is False


def test_silence_behind_buffered_events_moves_the_position_only_when_they_are_done_with() -> None:
    world, reader = consuming()
    ticks = world.broker.log(b"a", b"b")
    upto = world.broker.say_silence()
    world.pump()
    core = reader.core
    assert core.positions() == {PUBEND: BASE}

    reader.take(1)
    assert core.end_positions() == {PUBEND: ticks[0]}
    reader.take(1)
    assert core.positions() == {PUBEND: ticks[0]}
    assert core.end_positions() == {PUBEND: upto}

    further = world.broker.say_silence(upto + 5)
    world.pump()
    assert core.positions() == {PUBEND: ticks[0]}
    assert core.end_positions() == {PUBEND: further}
    assert reader.take() is False
    assert core.positions() == {PUBEND: further}


def test_silences_are_handed_out_where_they_are_wanted_merged_while_they_wait() -> None:
    world, reader = consuming(silence=True)
    world.broker.say_silence(BASE + 1)
    world.broker.say_silence(BASE + 2)
    (tick,) = world.broker.log(b"a")
    world.broker.say_silence(tick + 1)
    reader.take_all()
    world.broker.say_silence(tick + 2)
    world.broker.say_silence(tick + 2)
    reader.take_all()

    first, event, second, third = reader.items
    assert first == Silence(PUBEND, BASE, BASE + 2)
    assert isinstance(event, Event)
    assert second == Silence(PUBEND, tick, tick + 1)
    assert third == Silence(PUBEND, tick + 1, tick + 2)


def test_a_gap_is_handed_out_in_order_with_its_range() -> None:
    world, reader = consuming()
    (first,) = world.log(b"a")
    world.cut()
    ticks = world.broker.log(b"b", b"c", b"d")
    world.broker.release(ticks[1])
    world.advance(5)
    reader.take_all()

    kinds = [type(item) for item in reader.items]
    assert kinds == [Event, Gap, Event]
    assert reader.items[1] == Gap(PUBEND, first, ticks[1], "released early")
    assert reader.bodies == [b"a", b"d"]


def test_a_gap_that_is_known_is_not_handed_out_again() -> None:
    world, reader = consuming()
    (tick,) = world.log(b"a")
    session = world.broker.session
    world.broker.tell(session, m.DeliverGap(1, 0, BASE - 10, tick, "old"))
    world.broker.tell(session, m.DeliverGap(1, 0, BASE - 10, tick + 10, "half new"))
    reader.take_all()

    assert reader.items[1:] == [Gap(PUBEND, tick, tick + 10, "half new")]


def test_a_broker_that_begins_later_than_asked_makes_a_gap() -> None:
    """Nobody has said what lies between: it is not silence."""
    world, reader = consuming()
    (tick,) = world.broker.log(b"a")
    reader.take_all()
    world.cut()
    world.broker._attach = _attach_later(world.broker)  # type: ignore[method-assign]
    world.advance(5)
    reader.take_all()

    (gap,) = reader.items[1:]
    assert (gap.start, gap.end) == (tick, tick + 7)


def test_a_token_sets_the_position_and_its_unknown_pubends_are_kept() -> None:
    world, reader = consuming()
    ticks = world.broker.log(b"a", b"b", b"c")
    reader.take_all()
    world.core.detach(reader.number, world.now)
    again = world.subscribe(
        start=m.StartAt.TOKEN,
        positions={PUBEND: ticks[0], "q@1": 77},
        token_sid=1,
        token_generation=1001,
        token_seal=b"seal of 1",
    )

    assert again.take_all() == [b"b", b"c"]
    assert again.position == {PUBEND: ticks[2], "q@1": 77}


def test_silence_on_a_pubend_that_the_token_does_not_name_needs_nobodys_word() -> None:
    """A broker that has crashed would else keep all that follows where it begins, until there is an event."""
    world, reader = consuming(start=m.StartAt.TOKEN, positions={"q@1": 77})
    upto = world.broker.say_silence(BASE + 9)
    reader.take_all()
    world.reconnect()

    assert world.broker.messages(m.Subscribe)[1].acknowledged == [m.Acknowledged(PUBEND, upto, 0)]


def test_silence_is_acknowledged_for_an_application_that_waits_and_ever_less_often() -> None:
    """Found by the simulator (committing 159): it never says anything, and its broker kept all for it."""
    world, reader = consuming(name="s")
    said: list[float] = []
    for second in range(1, 101):
        world.advance(1)
        before = len(world.broker.messages(m.Acknowledge))
        world.broker.say_silence(BASE + second)
        world.pump()
        said += [second] * (len(world.broker.messages(m.Acknowledge)) - before)
    assert said == [5, 15, 35, 75]
    assert world.broker.messages(m.Acknowledge)[-1].positions == [m.Acknowledged(PUBEND, BASE + 75, 0)]

    world.broker.log(b"a")
    reader.take_all()
    world.advance(100)
    world.broker.say_silence()
    world.pump()
    assert len(world.broker.messages(m.Acknowledge)) == 4, "the application has to say that it is done with the event"


def test_silence_behind_a_token_is_not_acknowledged_by_an_older_one() -> None:
    """Found by the simulator (hostile 3864): what lies between the two is not acknowledged yet."""
    world, reader = consuming(start=m.StartAt.TOKEN, positions={PUBEND: BASE + 5})
    world.core.acknowledge(reader.number, {PUBEND: BASE + 2}, world.now)
    upto = world.broker.say_silence(BASE + 9)
    reader.take_all()
    world.reconnect()

    again = world.broker.messages(m.Subscribe)[1]
    assert again.positions == [m.Position(PUBEND, upto)]
    assert again.acknowledged == [m.Acknowledged(PUBEND, BASE + 2, BASE + 2)]


def test_a_pubend_that_comes_later_is_taken_from_its_first_event_and_in_turn() -> None:
    world, reader = consuming()
    world.broker.add_pubend("q@1")
    assert "q@1" not in reader.position
    for i in range(3):
        world.broker.log(b"p%d" % i)
        world.log(b"q%d" % i, pubend="q@1")

    assert reader.take_all() == [b"p0", b"q0", b"p1", b"q1", b"p2", b"q2"]
    assert set(reader.position) == {PUBEND, "q@1"}


def test_a_batch_is_of_one_pubend_and_as_large_as_there_is() -> None:
    world, reader = consuming()
    world.broker.add_pubend("q@1")
    for i in range(10):
        world.broker.log(b"p%d" % i)
        world.broker.log(b"q%d" % i, pubend="q@1")
    world.pump()
    sizes = []
    while True:
        before = len(reader.bodies)
        if not reader.take(7):
            break
        sizes.append(len(reader.bodies) - before)

    assert sizes == [7, 7, 3, 3]
    assert [body for body in reader.bodies if body.startswith(b"p")] == [b"p%d" % i for i in range(10)]


def test_drain_hands_out_nothing_more_and_wakes_whoever_waits() -> None:
    world, reader = consuming()
    world.log(b"a", b"b")
    reader.take(1)
    told = len(world.effects(e.Arrived))
    world.core.drain(reader.number, world.now)
    world.pump()

    assert len(world.effects(e.Arrived)) == told + 1
    assert reader.take() is False
    world.core.acknowledge(reader.number, reader.position, world.now)
    world.advance(1)
    assert len(world.broker.messages(m.Acknowledge)) == 1


def test_an_acknowledgement_goes_out_at_once_and_then_every_100_ms() -> None:
    world, reader = consuming()
    world.log(*(b"%d" % i for i in range(40)))
    sent_at = []
    for _ in range(40):
        reader.take(1)
        world.core.acknowledge(reader.number, reader.position, world.now)
        before = len(world.broker.messages(m.Acknowledge))
        world.advance(0.01)
        sent_at += [world.now] * (len(world.broker.messages(m.Acknowledge)) - before)
    world.advance(1)

    assert [round((at - sent_at[0]) / 10**7) for at in sent_at] == [0, 9, 19, 29, 39]
    last = world.broker.messages(m.Acknowledge)[-1].positions
    newest = world.broker.streams[PUBEND].newest
    assert last == [m.Acknowledged(PUBEND, newest, newest)]
    assert world.broker.subscriptions[1].acknowledged == {PUBEND: newest}


def test_an_acknowledgement_that_was_lost_is_repeated_with_the_next_session() -> None:
    world, reader = consuming()
    (tick,) = world.broker.log(b"a")
    reader.take_all()
    world.core.acknowledge(reader.number, {PUBEND: tick}, world.now)
    world.cut()
    world.advance(5)

    assert world.broker.messages(m.Subscribe)[1].acknowledged == [m.Acknowledged(PUBEND, tick, tick)]
    assert world.broker.messages(m.Acknowledge) == []
    assert world.broker.subscriptions[1].acknowledged == {PUBEND: tick}


def test_an_acknowledgement_while_it_attaches_is_sent_when_it_is() -> None:
    world, reader = consuming()
    (tick,) = world.broker.log(b"a")
    reader.take_all()
    world.cut()
    world.broker.put_off = [m.Subscribe]
    world.advance(0.11)
    world.core.acknowledge(reader.number, {PUBEND: tick}, world.now)
    world.advance(5)

    assert world.broker.subscriptions[1].acknowledged == {PUBEND: tick}


def test_what_is_acknowledged_is_told_before_letting_go() -> None:
    world, reader = consuming()
    (tick,) = world.broker.log(b"a")
    reader.take_all()
    world.core.acknowledge(reader.number, {PUBEND: tick}, world.now)
    world.core.detach(reader.number, world.now)
    world.pump()

    assert world.broker.subscriptions[1].acknowledged == {PUBEND: tick}
    assert [type(message) for message in world.broker.received[-2:]] == [m.Acknowledge, m.Detach]


def _attach_later(broker: FakeBroker) -> Any:
    attach = broker._attach

    def later(session: Any, message: m.Subscribe, sub: Any, *, created: bool) -> None:
        positions = [m.Position(p.pubend, p.tick + 7) for p in message.positions or []]
        message = m.Subscribe(
            message.request, message.name, message.topics, message.selector, message.start, 0, positions, 0, 0, b"",
            [], message.in_use, message.credit_events, message.credit_bytes,
        )  # fmt: skip
        attach(session, message, sub, created=created)

    return later


def test_the_window_is_never_exceeded_and_what_is_buffered_never_negative() -> None:
    """The client counts as the broker does; a count that is off would stall a subscription for ever."""
    world, reader = consuming()
    for body in (b"a", b"b"):
        world.log(body)
    core = reader.core

    core._credit_events += 10_000_000
    with pytest.raises(AssertionError, match="more is granted"):
        core.take(None)
    core._credit_events -= 10_000_000
    core._buffered_events = 0
    with pytest.raises(AssertionError):
        core.take(None)


@pytest.mark.parametrize("durable", [True, False])
def test_one_that_stands_on_too_many_pubends_ends_before_it_is_handed_anything(
    monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    """A broker that is older does not look: a token of it would have no text."""
    world = World(FakeBroker(pubends=("p@1", "p@2", "p@3"))).start()
    monkeypatch.setattr("gapless.core.wire.token_room.PUBENDS_MAX", 2)
    reader = world.subscribe("s" if durable else None)
    world.broker.log(b"a")

    error = world.failure(reader.number)
    assert isinstance(error, ConfigurationError)
    assert "subscription" in str(error)
    assert "stands on 3 pubends: a checkpoint token has room for 2. Its last token stays valid" in str(error)
    assert reader.take_all() == []
    assert len(world.broker.messages(m.Detach)) == 1


def test_one_whose_broker_finds_too_many_pubends_later_ends_before_it_is_handed_anything_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(FakeBroker(pubends=("p@1", "p@2"))).start()
    monkeypatch.setattr("gapless.core.wire.token_room.PUBENDS_MAX", 2)
    reader, other = world.subscribe("s"), world.subscribe("other")
    world.broker.log(b"a")
    assert reader.take_all() == [b"a"]
    handed_out = reader.position

    world.broker.add_pubend("p@3")
    world.log(b"b", pubend="p@3")

    assert isinstance(world.failure(reader.number), ConfigurationError)
    assert isinstance(world.failure(other.number), ConfigurationError)
    assert reader.bodies == [b"a"]
    assert set(handed_out) <= {"p@1", "p@2"}
    world.reconnect()
    assert [said.name for said in world.broker.messages(m.Subscribe)] == ["s", "other"]

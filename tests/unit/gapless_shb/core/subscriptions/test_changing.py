"""A subscription that gets another filter: where it goes on, and what a crash leaves (protocol: changing; T46)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import AskInterest, Interest
from gapless.core.ports import ClientSession, Delete, SessionEnded, Set, Tell, Transmit
from gapless.core.principals import NOBODY
from gapless.core.stream.ticks import FOREVER
from gapless.core.wire import messages as m
from gapless.core.wire.codec import decode_server
from gapless_shb.core.state.registry import SUBSCRIPTIONS
from unit.gapless_shb.core.harness import PUBEND, World

OTHER = "w = 2"
KEEP, ANEW = m.OnChange.KEEP_POSITION, m.OnChange.JMS


class Changing:
    """A world in which sessions ask for the subscription "s" of the client "c"."""

    def __init__(self) -> None:
        self.world = World()
        self.world.sync()
        self.alive: dict[int, ClientSession] = {}

    def ask(self, number: int, selector: str = "w = 1", instance: str = "", **fields: Any) -> None:
        """The session with this number asks; each has an instance of its own."""
        session = self.alive[number] = ClientSession(number, "c", instance or f"i{number}", NOBODY)
        request = m.Subscribe(
            number, "s", ("#",), selector, m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.ERROR, 100, 1 << 20
        )
        values = {field: getattr(request, field) for field in request.__struct_fields__} | fields
        self.world.feed(m.Subscribe(**values), session)
        self.world.pump()

    def end(self, number: int) -> None:
        self.world.feed(SessionEnded(self.alive.pop(number)))
        self.world.pump()

    def answer(self, number: int) -> m.Subscribed | m.RequestFailed | None:
        answers = [
            effect.message
            for effect in self.world.sent(Tell)
            if effect.session == number and isinstance(effect.message, m.Subscribed | m.RequestFailed)
        ]
        return answers[-1] if answers else None

    def attached(self, number: int) -> m.Subscribed:
        """It is attached when everything is durable."""
        self.world.sync()
        self.world.sync()
        answer = self.answer(number)
        assert isinstance(answer, m.Subscribed), answer
        return answer

    def refused(self, number: int) -> m.RequestFailed:
        answer = self.answer(number)
        assert isinstance(answer, m.RequestFailed), answer
        return answer

    def publish(self, events: int) -> None:
        """Events are logged, and heard of as far as this broker wants them."""
        world = self.world
        before = world.stable
        for _ in range(events):
            world.publish()
        world.deliver(world.knowledge(before, world.stable, raw=False, reply=False))
        world.sync()

    def ticks(self, selector: str, after: int) -> list[int]:
        """The log's events that a selector `w = n` selects after a tick."""
        return [tick for tick, properties, _ in self.world.log if tick > after and f"w = {properties['w']}" == selector]

    def delivered(self, number: int) -> list[int]:
        """The events that a session got, once all that was asked for has come."""
        world = self.world
        for _ in range(6):
            world.sync()
            world.answer_holds()
            world.read()
            world.answer_wants()
            world.pause(300)
        found: list[int] = []
        for effect in world.sent(Transmit):
            if effect.session == number:
                for head, body in effect.payloads:
                    message = decode_server(head + body)
                    assert isinstance(message, m.Deliver)
                    found += message.columns.ticks()
        return found

    def position(self, answer: m.Subscribed) -> int:
        [position] = answer.positions
        return position.tick


def acknowledged_in_the_middle(changing: Changing) -> tuple[m.Subscribed, int]:
    """Events come, the consumer is done with some of them, and goes. Returns its answer, and where it stands."""
    changing.ask(1)
    answer = changing.attached(1)
    changing.publish(24)
    mine = changing.ticks("w = 1", 0)
    done = mine[2]
    changing.world.feed(m.Acknowledge(answer.sid, [m.Acknowledged(PUBEND, done, done)]), changing.alive[1])
    changing.end(1)
    changing.world.pause(300)
    changing.world.sync()
    return answer, done


def test_it_goes_on_where_it_stands_with_the_new_filter_alone() -> None:
    """What the PFS has of the old filter behind the position is not what it gets, nor anything of before it."""
    changing = Changing()
    former, done = acknowledged_in_the_middle(changing)

    changing.ask(2, OTHER, on_change=KEEP)
    answer = changing.attached(2)
    changing.publish(16)
    got = changing.delivered(2)

    assert (answer.sid, answer.generation, answer.created) == (former.sid, former.generation, False)
    assert changing.position(answer) == done
    assert got == changing.ticks(OTHER, done)


@pytest.mark.parametrize("durable", [True, False])
def test_a_crash_leaves_the_old_filter_or_the_new_one(durable: bool) -> None:
    """In the first case with what it had in the PFS, in the second with nothing in it."""
    changing = Changing()
    _, done = acknowledged_in_the_middle(changing)
    changing.ask(2, OTHER, on_change=KEEP)
    if durable:
        changing.attached(2)
    changing.world.crash()
    selector = OTHER if durable else "w = 1"

    changing.ask(3, selector)
    answer = changing.attached(3)
    changing.publish(8)

    assert changing.position(answer) == done
    assert changing.delivered(3) == changing.ticks(selector, done)


def test_until_it_is_durable_the_network_is_told_the_old_filter() -> None:
    """A crash would bring that back, and silence that was said without it would be believed."""
    changing = Changing()
    former, _ = acknowledged_in_the_middle(changing)
    world = changing.world

    changing.ask(2, OTHER, on_change=KEEP)
    world.said.clear()
    world.feed(AskInterest())
    world.pump()
    before = [effect.add[former.sid].selector for effect in world.sent(Interest) if effect.full]
    changing.attached(2)
    world.said.clear()
    world.feed(AskInterest())
    world.pump()
    after = [effect.add[former.sid].selector for effect in world.sent(Interest) if effect.full]

    assert (before, after) == (["w = 1"], [OTHER])


def test_who_was_asked_twice_for_joins_under_the_newest_version() -> None:
    """Silence that honours the first change says nothing of the second one."""
    changing = Changing()
    former, _ = acknowledged_in_the_middle(changing)
    world = changing.world
    for number, selector in ((2, OTHER), (3, "w = 3")):
        changing.ask(number, selector, on_change=KEEP)
        changing.attached(number)
        changing.end(number)
    position = world.stream.positions[former.sid]
    newest = world.known_version

    world.known_version = newest - 1
    changing.publish(4)
    early = position.since
    world.known_version = newest
    changing.publish(4)

    assert early == FOREVER
    assert position.since < FOREVER


def test_who_goes_back_behind_the_change_is_told_what_is_lost_there() -> None:
    """Nothing was kept for the new filter; what the log still has it gets."""
    changing = Changing()
    former, _ = acknowledged_in_the_middle(changing)
    changing.ask(2, OTHER, on_change=KEEP)
    changing.attached(2)
    changing.end(2)
    world = changing.world
    world.lost = changing.ticks("w = 1", 0)[1]
    begin = world.log[0][0]

    changing.ask(
        3,
        OTHER,
        start=m.StartAt.TOKEN,
        positions=[m.Position(PUBEND, begin)],
        token_sid=former.sid,
        token_generation=former.generation,
        token_seal=former.seal,
    )
    changing.attached(3)
    got = changing.delivered(3)
    gaps = [effect.message for effect in world.sent(Tell) if isinstance(effect.message, m.DeliverGap)]

    assert got == changing.ticks(OTHER, max(begin, world.lost))
    assert [(gap.start, gap.end >= world.lost) for gap in gaps] == [(begin, True)]


@pytest.mark.parametrize("change", [KEEP, ANEW])
def test_whoever_consumes_it_keeps_it_unless_it_is_taken_over(change: m.OnChange) -> None:
    """Nor is it removed under a consumer by `takeover`."""
    changing = Changing()
    changing.ask(1)
    former = changing.attached(1)

    changing.ask(2, OTHER, on_change=change)
    changing.ask(3, OTHER, on_change=change, in_use=m.InUse.TAKEOVER)

    assert changing.refused(2).code is m.Code.IN_USE
    if change is ANEW:
        assert changing.refused(3).code is m.Code.IN_USE
    else:
        assert changing.attached(3).sid == former.sid
    detached = [e for e in changing.world.sent(Tell) if e.session == 1 and isinstance(e.message, m.Detached)]
    assert len(detached) == (change is KEEP)


def test_it_waits_for_the_consumer_and_is_changed_then() -> None:
    changing = Changing()
    changing.ask(1)
    former = changing.attached(1)
    changing.ask(2, OTHER, on_change=ANEW, in_use=m.InUse.WAIT)
    assert changing.answer(2) is None

    changing.end(1)

    assert changing.attached(2).sid > former.sid


def test_made_anew_it_begins_at_the_latest_tick_in_one_write() -> None:
    """The backlog is lost, and no crash leaves the name without a subscription."""
    changing = Changing()
    former, _ = acknowledged_in_the_middle(changing)
    world = changing.world
    at = world.stable

    world.said.clear()
    changing.ask(2, OTHER, on_change=ANEW, start=m.StartAt.EARLIEST)
    [write] = [write for write in world.unsynced if write.operations]
    answer = changing.attached(2)
    changing.publish(8)

    kinds = [
        type(operation)
        for operation in write.operations
        if isinstance(operation, Set | Delete) and operation.table == SUBSCRIPTIONS
    ]
    assert kinds == [Delete, Set]
    assert answer.created
    assert answer.sid > former.sid
    assert changing.delivered(2) == changing.ticks(OTHER, at)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, m.Code.MISMATCH),
        ({"on_change": KEEP, "order": m.Order.TOTAL}, m.Code.MISMATCH),
        ({"on_change": ANEW, "start": m.StartAt.TOKEN, "positions": []}, m.Code.CONFIGURATION),
        ({"on_change": ANEW, "order": m.Order.TOTAL}, m.Code.CONFIGURATION),
        ({"on_change": KEEP, "selector": "w ="}, m.Code.INVALID_SELECTOR),
        ({"on_change": ANEW, "selector": "w ="}, m.Code.INVALID_SELECTOR),
    ],
)
def test_what_may_not_change_is_refused_and_changes_nothing(fields: dict[str, Any], code: m.Code) -> None:
    changing = Changing()
    former, done = acknowledged_in_the_middle(changing)
    changing.ask(2, **{"selector": OTHER} | fields)
    assert changing.refused(2).code is code

    changing.ask(3)

    assert (changing.attached(3).sid, changing.position(changing.attached(3))) == (former.sid, done)


def test_who_attaches_again_after_a_change_is_told() -> None:
    """It has events of the old filter, and would go on with those of another one."""
    changing = Changing()
    former, done = acknowledged_in_the_middle(changing)
    changing.ask(2, OTHER, on_change=KEEP)
    changing.attached(2)
    changing.end(2)

    changing.ask(
        3,
        sid=former.sid,
        generation=former.generation,
        start=m.StartAt.TOKEN,
        positions=[m.Position(PUBEND, done)],
        on_change=KEEP,
    )

    assert changing.refused(3).code is m.Code.MISMATCH


def test_what_is_being_created_is_changed_only_afterwards() -> None:
    changing = Changing()
    changing.ask(1)
    changing.ask(2, OTHER, on_change=ANEW)
    assert changing.refused(2).code is m.Code.RETRY

    changing.attached(1)


def test_no_local_is_a_part_of_the_filter() -> None:
    """The client id says who it is; without one, it is the connection."""
    changing = Changing()
    changing.ask(1, no_local=True)
    answer = changing.attached(1)
    record = changing.world.hosting.registry.get(answer.sid)
    assert record is not None
    changing.end(1)

    changing.ask(2, no_local=False)
    changing.ask(3, no_local=True, instance="another")

    assert answer.no_local
    assert record.filter.selector == "(w = 1) AND (JMSXAppID IS NULL OR JMSXAppID <> 'c')"
    assert "with no_local" in changing.refused(2).reason
    assert changing.attached(3).sid == answer.sid


@pytest.mark.parametrize("on_change", list(m.OnChange))
@pytest.mark.parametrize("spelt", ["w=1", " w\t=\n1 "])
def test_a_blank_is_no_change(on_change: m.OnChange, spelt: str) -> None:
    """Otherwise with on_change="jms" a blank would lose the backlog."""
    changing = Changing()
    former, done = acknowledged_in_the_middle(changing)

    changing.ask(2, spelt, on_change=on_change)

    answer = changing.attached(2)
    assert (answer.sid, changing.position(answer)) == (former.sid, done)
    assert changing.delivered(2) == changing.ticks("w = 1", done)


def test_what_an_earlier_broker_has_stored_is_the_same_whatever_its_blanks() -> None:
    """Its record keeps the text as it was written, and so does what other brokers know of it."""
    changing = Changing()
    changing.ask(1, "w=  1")
    former = changing.attached(1)
    changing.end(1)
    record = changing.world.hosting.registry.get(former.sid)
    assert record is not None

    changing.ask(2, "w = 1", on_change=ANEW)

    assert changing.attached(2).sid == former.sid
    assert record.selector == "w=  1"
    assert record.filter.selector == "w=  1"


def test_whoever_attaches_again_by_id_with_another_blank_goes_on() -> None:
    changing = Changing()
    former, done = acknowledged_in_the_middle(changing)

    changing.ask(
        2,
        "w  =  1",
        sid=former.sid,
        generation=former.generation,
        start=m.StartAt.TOKEN,
        positions=[m.Position(PUBEND, done)],
    )

    assert changing.attached(2).sid == former.sid

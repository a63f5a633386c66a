"""Messages in words: each kind says what it is about, in the names that people know."""

from __future__ import annotations

import typing

import pytest

from gapless.core.client.consuming.items import Gap, Silence
from gapless.core.network import facts as r
from gapless.core.network import frames as routing_frames
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, STEP, tick_at
from gapless.core.wire import codec
from gapless.core.wire import messages as m
from gapless.core.wire.messages import TickRun
from gapless.selectors.filters import Filter
from gapless_sim.recording.message_text import Conversation, MessageText, frame_text, item_text, routing_text
from gapless_sim.recording.short_names import Names
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.producer import KEY_BYTES
from unit.gapless_sim.hostile.parts import whole

ONE = tick_at(WALL_BEGIN + 1_000)
"""The first tick of second 1 of a run."""
TWO = tick_at(WALL_BEGIN + 2_000)


def events(*keys: int) -> EventColumns:
    bodies = [key.to_bytes(KEY_BYTES, "big") for key in keys]
    return EventColumns.of([encode_event("a", {}, None, body) for body in bodies], map(len, bodies))


def talk(*said: tuple[str, typing.Any]) -> list[str]:
    """What is heard of a conversation: `>` is from the client."""
    conversation = Conversation(Names())
    heard = []
    for way, message in said:
        if isinstance(message, m.Publish):
            payload = b"".join(codec.encode_publish(1, message))
        elif isinstance(message, bytes):
            payload = message
        else:
            payload = codec.encode(1, message)
        told = conversation.from_client(payload) if way == ">" else conversation.from_broker(payload)
        heard.append(told.text)
    return heard


def delivery(sid: int, number: int, keys: list[int], ticks: list[int]) -> bytes:
    batch = events(*keys).batch(ticks)
    return codec.deliver_head(1, sid, number) + batch.payload((1 << len(keys)) - 1)


def test_a_subscription_is_shown_by_its_name() -> None:
    subscribe = m.Subscribe(5, "late", ("#",), "k > 1", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.ERROR, 9, 9)

    assert talk(
        (">", subscribe),
        ("<", m.Subscribed(5, 17, 1, b"", True, [m.Position("p@1", ONE)])),
        ("<", m.PubendNumber(0, "p@1")),
        ("<", delivery(17, 0, [3], [TWO])),
        ("<", m.DeliverSilence(0, TWO, [17])),
        ("<", m.DeliverSilence(0, TWO, None)),
        ("<", m.DeliverGap(17, 0, ONE, TWO, "released early")),
        (">", m.Acknowledge(17, [m.Acknowledged("p@1", TWO, 0)])),
        (">", m.Credit(17, 1, 2000)),
        (">", m.Detach(17)),
        ("<", m.Detached(17, m.Code.TAKEN_OVER, "by another")),
    ) == [
        "subscribe late where k > 1, from latest",
        "late is created behind p 1.000",
        "number 0 is p",
        "deliver #3@2.000 of p to late",
        "silence of p up to 2.000 for late",
        "silence of p up to 2.000",
        "a GAP for late in p (1.000, 2.000]: released early",
        "acknowledge late: p 2.000",
        "credit for late: 1 event, 2,000 bytes",
        "detach late",
        "late is detached: subscription-taken-over: by another",
    ]


def test_what_is_held_is_shown() -> None:
    """Of a shared subscription: what one consumer got, took and settled."""
    payload = events(3).batch([TWO]).payload(1)
    held = m.Holds("p@1", (TWO,), (40,))

    assert talk(
        ("<", codec.deliver_held_head(1, 17, 0, 40, careful=True, attempts=b"\x01") + payload),
        (">", m.Take(17, held)),
        ("<", m.Taken(17, 40)),
        (">", m.Settle(17, 1, (m.Verdict(m.Kind.RETRY, held, 30_000),))),
        ("<", m.Settled(17, 1, (held,))),
        ("<", m.HoldLost(17, (held,))),
    ) == [
        "deliver #3@2.000 to be held, from number 40 on, which may have been handed out before",
        "take p 2.000",
        "taken from number 40 on",
        "settle 1: retry p 2.000 in 30,000 ms",
        "settlement 1 is durable, but for p 2.000",
        "no longer held: p 2.000",
    ]


def test_a_publisher_is_shown_by_its_name() -> None:
    assert talk(
        (">", m.OpenPublisher(1, "loader", "i", 1, None)),
        ("<", m.PublisherOpened(1, "p@1", 1, 4, ONE)),
        (">", m.Publish(1, 1, 5, events(8, 9), b"")),
        ("<", m.Published(1, 6, [TickRun(TWO, STEP, 2)])),
        ("<", m.PublishRefused(1, 7, m.Code.RETRY, "full")),
    ) == [
        "open publisher loader",
        "publisher loader is on p, 4 logged",
        "publish #8 #9 as loader, from number 5 on",
        "receipt for loader up to number 6: p 2.000 2.000+1",
        "loader: retry from number 7 on: full",
    ]


def test_what_makes_no_sense_is_said_to_make_none() -> None:
    assert talk((">", b"\0" * 8 + b"\xc1"), ("<", b"\0")) == [
        "9 bytes that make no sense",
        "1 bytes that make no sense",
    ]
    assert frame_text(b"\xc1", Names()).kind == "garbled"


@pytest.mark.parametrize("message", [*typing.get_args(m.AnyClientMessage), m.Publish, m.PublishKeyed])
def test_every_message_of_a_client_has_a_text(message: type) -> None:
    assert message in Conversation._FROM_CLIENT


@pytest.mark.parametrize("message", [*typing.get_args(m.AnyServerMessage), m.Deliver, m.DeliverHeld, m.RangeEvents])
def test_every_message_of_a_broker_has_a_text(message: type) -> None:
    assert message in Conversation._FROM_BROKER


META = r.PubendMeta("p@1", "phb1", stable=TWO)
ROUTING: list[tuple[routing_frames.Message, MessageText]] = [
    (
        Knowledge("p@1", ONE, TWO, events(4).batch([TWO]), stamp={}, reply=True),
        MessageText("knowledge", "answer: p (1.000, 2.000] holds #4@2.000"),
    ),
    (Knowledge("p@1", ONE, TWO), MessageText("knowledge", "p (1.000, 2.000] is silent")),
    (Knowledge("p@1", ONE, TWO, lost=FOREVER), MessageText("knowledge", "p (1.000, 2.000] is lost up to 2.000")),
    (
        routing_frames.NamedKnowledge(Knowledge("q@1", ONE, TWO, stamp={}), bytes(16)),
        MessageText("knowledge", "q (1.000, 2.000] is silent"),
    ),
    (routing_frames.StampSaid({"s@1": 2, "t@1": 5}), MessageText("stamp", "the stamp of 2 SHBs")),
    (routing_frames.StampQuestion(bytes.fromhex("c0ffee00" * 4)), MessageText("stamp?", "which stamp is c0ffee00?")),
    (r.Want("p@1", ((ONE, TWO),), None, "s@1", again=False), MessageText("want", "s needs p (1.000, 2.000]")),
    (
        whole(r.Interest("s@1", 1, 2, {3: Filter(("#",), "k = 1"), 4: Filter(("#",))}, frozenset({2, 1}))),
        MessageText("interest", "interest 2 of s: +3 where k = 1, +4, −1, −2"),
    ),
    (
        routing_frames.InterestPart("s@1", 1, 2, 0, 7, {}, frozenset({4}), full=True),
        MessageText("interest", "interest 2 of s: all of it: −4, more from 7 on"),
    ),
    (routing_frames.InterestSummary("s@1", 2, 99), MessageText("interest check", "s is at version 2")),
    (routing_frames.InterestQuestion(), MessageText("interest check", "what does everybody want?")),
    (
        routing_frames.ProgressRows((r.Progress("s@1", "p@1", ONE, TWO), r.Progress("s@1", "q@1", ONE, ONE))),
        MessageText("progress", "s: p delivered 2.000, released 1.000; s: q delivered 1.000, released 1.000"),
    ),
    (r.Posted("a", "phb", b"hello"), MessageText("mail", "5 bytes from a for phb")),
    (r.Hold("s@1", "p@1", 1, {1: 0, 2: ONE}), MessageText("hold", "s: keep p from the earliest, 1.000")),
    (r.Held("s@1", "p@1", 1, {1: ONE}), MessageText("hold", "p is kept for s from 1.000")),
    (r.Seen(META, ONE), MessageText("enrol", "p is here, decided up to 2.000; you are counted from 1.000 on")),
    (r.Probe("p@1", TWO), MessageText("probe", "do you know p up to 2.000?")),
    (r.Enrol("p@1", "s@1"), MessageText("enrol", "count s in for p")),
    (r.OpenRequest("loader", "i", 1, None, principal="anonymous"), MessageText("publish", "open publisher loader")),
    (
        r.Pub("loader", 1, 5, events(8), "p@1", b"", principal="anonymous"),
        MessageText("publish", "place #8 of loader, from number 5 on"),
    ),
    (
        routing_frames.Answer("p@1", r.Outcome(r.Verdict.RETRY, "full", 7)),
        MessageText("receipt", "retry, up to number 7: full"),
    ),
    (routing_frames.Private(3, b"xy"), MessageText("private", "2 bytes of kind 3")),
]


@pytest.mark.parametrize(
    ("message", "told"), ROUTING, ids=lambda value: value.text if isinstance(value, MessageText) else ""
)
def test_what_routers_send_has_a_text(message: routing_frames.Message, told: MessageText) -> None:
    assert routing_text(message, Names()) == told
    assert frame_text(routing_frames.encode(message), Names()) == told


def test_everything_that_routers_can_send_has_a_text() -> None:
    assert {type(message) for message, _ in ROUTING} == set(typing.get_args(routing_frames.Message))


def test_what_an_application_takes_has_a_text() -> None:
    assert item_text(Silence("p@1", ONE, TWO), Names()).text == "silence of p (1.000, 2.000]"
    assert item_text(Gap("p@1", ONE, TWO, "released"), Names()) == MessageText(
        "gap", "a GAP in p (1.000, 2.000]: released"
    )

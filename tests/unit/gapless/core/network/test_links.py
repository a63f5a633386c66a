"""One link between two brokers: its frames, its beats, its limits, and what an attacker may try."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.network import links
from gapless.core.network.greeting import PART_BYTES, PROTOCOL, LinkIdentity, LinkSizes, NodeAnswer
from gapless.core.network.links import GREETING_BYTES_MAX, HEAD_BYTES, SendPayloads, Waiting
from unit.gapless.core.network.link_world import SECOND, LinkNode, World
from wire import joined

SIZES = LinkSizes()


def linked(**identity: object) -> tuple[World, LinkNode, LinkNode]:
    """Two nodes with a link that `a` has dialed."""
    world = World()
    a, b = world.start("a", 11), world.start("b", 22, **identity)
    a.dial("b")
    world.run()
    return world, a, b


def said(node: LinkNode) -> list[bytes]:
    """The payloads that a node wants to send, which then do not arrive."""
    sent = [effect for effect in node.links.take_effects() if isinstance(effect, SendPayloads)]
    return [joined(payload) for effect in sent for payload in effect.payloads]


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=20))
def test_frames_arrive_as_they_were_sent(frames: list[bytes]) -> None:
    world, a, b = linked()

    a.send("b", *frames)
    world.run()

    assert [frame for _, frame in b.frames] == frames


@pytest.mark.parametrize("size", [1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 3 * PART_BYTES - 1, 4 << 20])
@pytest.mark.parametrize("urgent", [False, True])
def test_a_large_frame_travels_in_parts_and_comes_out_whole(size: int, *, urgent: bool) -> None:
    world, a, b = linked()
    frame = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    a.send("b", frame, b"behind", urgent=urgent)
    world.run()

    assert [arrived for _, arrived in b.frames] == [frame, b"behind"]
    assert b.limits[b.link_to("a")] == HEAD_BYTES + PART_BYTES


def test_an_urgent_frame_goes_between_the_parts_of_another() -> None:
    world, a, b = linked()
    a.links.on_send(a.link_to("b"), b"x" * (3 * PART_BYTES), urgent=False, now=world.now)
    a.links.on_send(a.link_to("b"), b"u" * (PART_BYTES + 1), urgent=True, now=world.now)
    payloads = said(a)
    urgent, ordinary = payloads[:2], payloads[2:]

    for payload in [ordinary[0], urgent[0], ordinary[1], urgent[1], ordinary[2]]:
        b.receive(b.link_to("a"), [payload])

    assert [frame for _, frame in b.frames] == [b"u" * (PART_BYTES + 1), b"x" * (3 * PART_BYTES)]


def test_a_frame_beyond_what_the_peer_takes_is_not_sent() -> None:
    world, a, b = linked(frame_bytes=1000)

    a.send("b", b"x" * 1001, b"y" * 1000)
    world.run()

    assert [frame for _, frame in b.frames] == [b"y" * 1000]
    assert "a frame of 1,001 bytes was not sent to the node 'b', which takes 1,000" in a.alarms[0].text


def test_parts_that_never_end_are_limited_before_they_are_kept() -> None:
    world, a, b = linked(frame_bytes=PART_BYTES + 10)
    a.links.on_send(a.link_to("b"), b"x" * (PART_BYTES + 10), urgent=False, now=world.now)
    part, _ = said(a)

    b.receive(b.link_to("a"), [part, part])

    assert b.up == {}
    assert f"it sent a frame of more than {PART_BYTES + 10} bytes" in b.alarms[0].text


def test_what_was_said_on_an_older_link_is_not_believed_on_a_newer_one() -> None:
    world, a, b = linked()
    a.links.on_send(a.link_to("b"), b"old", urgent=False, now=world.now)
    old = said(a)
    world.kill("b")
    b = world.start("b", 23)
    world.advance(1)
    assert a.peers == ["b"]

    b.receive(b.link_to("a"), old)
    a.send("b", b"new")
    world.run()

    assert [frame for _, frame in b.frames] == [b"new"]
    assert b.peers == ["a"]
    assert b.alarms == []


def test_a_recorded_handshake_does_not_open_a_link_again() -> None:
    world, a, b = World(), None, None
    a, b = world.start("a"), world.start("b")
    heard: list[list[bytes]] = []
    receive = b.receive
    b.receive = lambda number, payloads: (heard.append([*map(joined, payloads)]), receive(number, payloads))[1]  # type: ignore[method-assign, func-returns-value]
    a.dial("b")
    world.run()
    world.kill("a")

    number = b.links.on_accepted("203.0.113.1:1", "", world.now)
    assert number is not None
    for payloads in heard:
        receive(number, payloads)

    assert b.up == {}


def test_nobody_can_prove_with_the_other_s_proof() -> None:
    """The listener's proof, sent back: a reflection."""
    world = World()
    b = world.start("b")
    thief = LinkIdentity("flights", "a", frozenset({"phb"}), 1, "straight", b"map", b"not the secret at all")
    number = b.links.on_accepted("203.0.113.1:1", "", world.now)
    assert number is not None
    head, nonce = b"\0" * HEAD_BYTES, b"n" * 16
    b.links.on_payloads(number, [head + msgspec.msgpack.encode(thief.hello("b", nonce))], world.now)
    (answer,) = said(b)
    _, _, proof = msgspec.msgpack.decode(answer[HEAD_BYTES:])
    session = _session_of(answer, thief.hello("b", nonce))
    b.receive(number, [b"\0" + session + msgspec.msgpack.encode([3, proof])])

    assert b.up == {}
    assert "does not know the network's secret" in b.alarms[0].text


def _session_of(answer: bytes, hello: object) -> bytes:
    """The number of the link, which anybody can compute."""
    listener = msgspec.msgpack.decode(answer[HEAD_BYTES:], type=NodeAnswer).hello
    transcript = sha256(msgspec.msgpack.encode([hello, listener])).digest()
    return sha256(b"session" + transcript).digest()[:8]


@given(st.binary(max_size=100))
def test_garbage_ends_the_link_or_is_nothing(garbage: bytes) -> None:
    world = World()
    b = world.start("b")
    number = b.links.on_accepted("203.0.113.1:1", "", world.now)
    assert number is not None

    b.receive(number, [garbage])
    world.advance(6)

    assert b.up == {}
    assert number in b.closed


@pytest.mark.parametrize(
    "payload", [b"\0" * HEAD_BYTES + b"\xc1", b"\x02" + b"\0" * 8 + b"frame", b"\x01" + b"\0" * 16]
)
def test_who_has_not_said_who_he_is_may_say_nothing_else(payload: bytes) -> None:
    world = World()
    b = world.start("b")
    number = b.links.on_accepted("203.0.113.1:1", "", world.now)
    assert number is not None

    b.receive(number, [payload])

    assert number in b.closed


def test_before_it_is_known_who_speaks_only_so_many_bytes_are_taken() -> None:
    world = World()
    b = world.start("b")
    number = b.links.on_accepted("203.0.113.1:1", "", world.now)
    assert number is not None
    stray = b"\0" + b"\x01" * (GREETING_BYTES_MAX // 2 - 1)

    b.receive(number, [stray, stray])
    assert number not in b.closed
    b.receive(number, [b"\0" + b"\x01" * 8])

    assert f"more than {GREETING_BYTES_MAX} bytes before it was known" in b.closed[number]


def test_another_version_of_the_protocol_is_told_so() -> None:
    world = World()
    b = world.start("b")
    number = b.links.on_accepted("203.0.113.1:1", "", world.now)
    assert number is not None
    me = LinkIdentity("flights", "a", frozenset({"phb"}), 1, "straight")
    hello = msgspec.structs.replace(me.hello("b", b"n" * 16), protocol=PROTOCOL + 1)

    b.links.on_payloads(number, [b"\0" * HEAD_BYTES + msgspec.msgpack.encode(hello)], world.now)

    assert f"this node speaks version {PROTOCOL} of the links' protocol".encode() in b"".join(said(b))


def test_what_nobody_has_received_waits() -> None:
    world, a, _ = linked()
    world.advance(5)
    a.waiting.clear()
    world.cuts.add(("a", "b"))

    a.send("b", b"x" * SIZES.underway, b"y" * 1000)
    assert 1000 <= a.waiting[a.link_to("b")] <= 1000 + 40 * HEAD_BYTES
    a.send("b", b"z" * 1000)
    assert 2000 <= a.waiting[a.link_to("b")] <= 2000 + 40 * HEAD_BYTES


def test_what_was_received_does_not_wait_any_more() -> None:
    world, a, b = linked()

    a.send("b", *[b"x" * PART_BYTES] * 40)
    assert a.waiting[a.link_to("b")] > 0
    world.run()  # no beat is due: who receives much says so at once

    assert a.waiting[a.link_to("b")] == 0
    assert len(b.frames) == 40


def test_who_says_that_more_arrived_than_was_sent_is_no_peer() -> None:
    world, a, b = linked()
    a.links.on_deadline(world.now + SECOND)
    (beat,) = said(a)

    b.receive(b.link_to("a"), [beat[:HEAD_BYTES] + (1 << 40).to_bytes(8, "little")])

    assert b.up == {}
    assert "it says that 1099511627776 bytes arrived, of 0 that were sent" in b.alarms[0].text


def test_a_node_that_slept_does_not_take_its_own_sleep_for_silence() -> None:
    world, a, b = linked()
    world.advance(2)

    world.now += 10 * SECOND
    a.links.on_deadline(world.now)
    b.links.on_deadline(world.now)
    a.settle()
    b.settle()
    world.advance(5)

    assert a.peers == ["b"]
    assert b.peers == ["a"]


def test_it_never_shows_the_secret() -> None:
    assert "long" not in repr(LinkIdentity("flights", "a", frozenset(), 1, "straight", secret=b"a long secret"))


def test_waiting_is_said_when_it_changes_and_not_else() -> None:
    world, a, _ = linked()

    a.links.on_send(a.link_to("b"), b"x", urgent=False, now=world.now)

    assert not [effect for effect in a.links.take_effects() if isinstance(effect, Waiting)]


def test_a_link_is_over_when_the_peer_says_three_times_that_nothing_arrives() -> None:
    world, a, b = linked()
    b.links.on_send(b.link_to("a"), b"x", urgent=False, now=world.now)
    session = said(b)[0][1:HEAD_BYTES]
    nothing, something = (b"\x01" + session + count.to_bytes(8, "little") for count in (0, HEAD_BYTES + 1))
    world.cuts.add(("a", "b"))
    a.send("b", b"y", b"z")

    for beat in (nothing, nothing, something, nothing, nothing):
        a.receive(a.link_to("b"), [beat])
    assert a.peers == ["b"]
    a.receive(a.link_to("b"), [nothing])

    assert a.up == {}
    assert "it says that nothing arrives there: the link works one way only" in a.closed.values()
    assert a.alarms == []


def test_a_peer_with_nothing_to_hear_may_say_so_for_ever() -> None:
    world, a, b = linked()
    b.links.on_send(b.link_to("a"), b"x", urgent=False, now=world.now)
    nothing = b"\x01" + said(b)[0][1:HEAD_BYTES] + (0).to_bytes(8, "little")

    for _ in range(10):
        a.receive(a.link_to("b"), [nothing])

    assert a.peers == ["b"]


def sent_at_once(node: LinkNode, peer: str) -> int:
    """How many of a hundred payloads a node lets go before it hears that anything arrived."""
    for _ in range(100):
        node.links.on_send(node.link_to(peer), b"x" * PART_BYTES, urgent=False, now=node.world.now)
    return len(said(node))


def test_urgent_frames_overtake_what_there_is_no_room_for() -> None:
    world, a, b = linked()
    assert sent_at_once(a, "b") == SIZES.window // PART_BYTES

    a.links.on_send(a.link_to("b"), b"urgent", urgent=True, now=world.now)
    (urgent,) = said(a)
    b.receive(b.link_to("a"), [urgent])

    assert [frame for _, frame in b.frames] == [b"urgent"]


def test_a_fast_link_has_room_for_more() -> None:
    world, a, _ = linked()
    world.advance(1)
    a.send("b", *[b"x" * PART_BYTES] * 64)
    world.advance(0.6)
    a.send("b", *[b"x" * PART_BYTES] * 64)
    world.run()

    assert 32 <= sent_at_once(a, "b") <= 33  # what it took in half a beat
    world, a, _ = linked()
    world.advance(10)
    assert sent_at_once(a, "b") == SIZES.window // PART_BYTES


def test_what_waits_for_a_peer_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "QUEUE_BYTES_MAX", 50 * PART_BYTES)
    world, a, _ = linked()
    sent_at_once(a, "b")

    a.links.on_deadline(world.now + SECOND)
    a.settle()

    assert a.up == {}
    assert [reason for reason in a.closed.values() if "bytes wait for it" in reason] != []

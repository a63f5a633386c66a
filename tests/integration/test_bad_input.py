"""Whatever comes in over the port: the connection is closed or the frame refused, and nobody else notices.

F01 – F08, F10 – F12, INV14. Everything here goes to a real node on RocksDB
over TCP, beside a client that goes on with its work.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gapless
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.codec import encode, encode_publish
from gapless.core.wire.framing import encode_frame
from gapless.core.wire.messages import (
    PROTOCOL,
    Closing,
    Code,
    Heartbeat,
    Hello,
    HelloRefused,
    ListSubscriptions,
    OpenPublisher,
    Publish,
    Published,
    PublishRefused,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from gapless.core.wire.numbering import HEAD_BYTES
from integration.bad_messages import QUICK, attached, requests, variants, welcome_client
from integration.bystander import Bystander, bystanding
from integration.nodes_in_process import running_node
from integration.raw_client import RawClient, payload
from wire import columns, hello

pytestmark = pytest.mark.timeout(60)

MEBIBYTE = 1 << 20
DEEP = 100_000

Value = TypeVar("Value")


# ------------------------------------------------------------------------------------- before the handshake


def frame(message: Any) -> bytes:
    """A client's first message, in a frame."""
    return encode_frame(encode(0, message))


def raw_hello(*values: Any) -> bytes:
    """A Hello with any values in its places."""
    return encode_frame(payload(0, msgspec.msgpack.encode([1, *values])))


def wrong_checksum(data: bytes) -> bytes:
    """The same frame with one bit of its checksum flipped."""
    return data[:4] + bytes([data[4] ^ 1]) + data[5:]


def noise(seed: int) -> bytes:
    """Random bytes."""
    return random.Random(seed).randbytes(random.Random(seed).randrange(8, 6000))


UNFRAMED = {
    **{f"noise {seed}": noise(seed) for seed in range(8)},
    "HTTP": b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "length 2^31": (1 << 31).to_bytes(4, "little") + bytes(4),
    "length 2^32 - 1": b"\xff" * 8,
    "length one above the limit": (4097).to_bytes(4, "little") + bytes(4),
    "length 0": bytes(8),
    "wrong checksum": wrong_checksum(frame(hello())),
}
"""What is no frame, or none that may come first."""


async def test_what_is_no_frame_closes_the_connection(bystander: Bystander, subtests: pytest.Subtests) -> None:
    """F01, F02, F03: at once, whatever would have come behind it."""
    for name, data in UNFRAMED.items():
        with subtests.test(name):
            async with RawClient(bystander.address) as client:
                await client.send(data + frame(hello()))

                assert await client.hear_all() == []
            assert bystander.is_undisturbed()


NOT_WELCOME = {
    "empty message": (encode_frame(payload(0, b"")), "too short"),
    "shorter than a session": (encode_frame(b"abc"), "too short"),
    "not msgpack": (encode_frame(payload(0, b"\xc1\xc1\xc1")), "not a Hello"),
    "a number": (encode_frame(payload(0, b"\x2a")), "not a Hello"),
    "a map": (encode_frame(payload(0, b"\x81\x01\x02")), "not a Hello"),
    "an unknown message": (encode_frame(payload(0, msgspec.msgpack.encode([99, 1, ""]))), "not a Hello"),
    "deeply nested": (encode_frame(payload(0, b"\x91" * 4000)), "not a Hello"),
    "deep in a field": (encode_frame(payload(0, b"\x96\x01" + b"\x91" * 4000)), "not a Hello"),
    "an array that claims 2^32 - 1 entries": (encode_frame(payload(0, b"\xdd\xff\xff\xff\xff\x01")), "not a Hello"),
    "text that is no UTF-8": (encode_frame(payload(0, b"\x95\x01\x01\xa1\xff\xa0\xa1i")), "not a Hello"),
    "fields are missing": (raw_hello(PROTOCOL, ""), "not a Hello"),
    "a field of another type": (raw_hello("1", "", "", "i"), "not a Hello"),
    "credentials that are text": (raw_hello(PROTOCOL, "", "", "i", 5), "not a Hello"),
    "bytes behind the message": (encode_frame(encode(0, hello()) + b"\x00"), "not a Hello"),
    "protocol 3": (raw_hello(3, "", "", "i"), "speaks protocol 2"),
    "protocol 0": (raw_hello(0, "", "", "i"), "speaks protocol 2"),
    "protocol -1": (raw_hello(-1, "", "", "i"), "speaks protocol 2"),
    "protocol 2^64 - 1": (raw_hello((1 << 64) - 1, "", "", "i"), "speaks protocol 2"),
    "protocol -2^63": (raw_hello(-(1 << 63), "", "", "i"), "speaks protocol 2"),
    "another network": (frame(hello(network="elsewhere")), "not in 'elsewhere'"),
    "no instance": (frame(hello(instance="")), "instance is empty"),
    "a client id with a line break": (frame(hello(client_id="a\r\nb")), "cannot be printed"),
    "a client id with NUL": (frame(hello(client_id="a\0")), "cannot be printed"),
    "a client id of 256 bytes": (frame(hello(client_id="x" * 256)), "longer than 255"),
    "a session": (encode_frame(encode(7, hello())), "names a session"),
    "a heartbeat first": (frame(Heartbeat()), "not a Hello"),
    "a listing first": (frame(ListSubscriptions(1)), "not a Hello"),
    "an unsubscription first": (frame(Unsubscribe(1, "s", "bystander")), "not a Hello"),
    "a publisher first": (frame(OpenPublisher(1, "p", "i", 1, None)), "not a Hello"),
    "a batch first": (
        encode_frame(b"".join(encode_publish(0, Publish(1, 1, 1, columns(b"x", topic="work"), b"")))),
        "not a Hello",
    ),
}
"""First frames that are well made, and why they are refused."""


async def test_a_first_frame_that_is_no_good_hello_is_refused_with_the_reason(
    bystander: Bystander, subtests: pytest.Subtests
) -> None:
    """F01, F04, F06, F07, F10: and what comes behind it is not looked at, were it a perfect Hello."""
    for name, (data, reason) in NOT_WELCOME.items():
        with subtests.test(name):
            async with RawClient(bystander.address) as client:
                await client.send(data + frame(hello()))

                [refused] = await client.hear_all()
            assert isinstance(refused, HelloRefused)
            assert refused.code is not Code.RETRY
            assert reason in refused.reason
            assert bystander.is_undisturbed()


async def test_a_hello_that_comes_byte_by_byte_is_welcome(bystander: Bystander) -> None:
    """What is chopped is not bad."""
    async with RawClient(bystander.address) as client:
        for byte in frame(hello()):
            await client.send(bytes([byte]))
            await asyncio.sleep(0)

        assert isinstance(await client.hear(Welcome), Welcome)


async def test_a_frame_that_ends_in_its_middle_is_given_up(bystander: Bystander) -> None:
    """F03: whereever the other end closes."""
    whole = frame(hello())
    for length in range(len(whole)):
        async with RawClient(bystander.address) as client:
            await client.send(whole[:length])
            await client.finish()

            assert await client.hear_all() == []


async def test_who_does_not_shake_hands_in_time_is_sent_away(tmp_path: Path) -> None:
    """F08: silent or dripping, and however many; nothing of it delays who is at work."""
    async with (
        bystanding(tmp_path / "volume", limits={"handshake": 0.5}) as bystander,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(RawClient(bystander.address)) for _ in range(40)]
        dripping = asyncio.ensure_future(drip(clients[::2], frame(hello(client_id="x" * 200))))
        ended = asyncio.ensure_future(asyncio.gather(*(client.hear_all() for client in clients)))
        while not ended.done():
            await bystander.works()
        dripping.cancel()
        answers = await ended

        assert bystander.is_undisturbed()
    for [refused] in answers:
        assert refused.code is Code.RETRY
        assert refused.reason == "no Hello within 0.5 s"


async def drip(clients: list[RawClient], data: bytes) -> None:
    """Sends a byte now and then; so few that the whole never comes to an end."""
    for byte in data[:-1]:
        for client in clients:
            await client.send(bytes([byte]))
        await asyncio.sleep(0.02)


# -------------------------------------------------------------------------------------- after the handshake


CUT = b"cut"
"""Stands for a payload that ends within the numbers of its frame."""

NONSENSE = {
    "nothing": b"",
    "not msgpack": b"\xc1",
    "nil": b"\xc0",
    "an empty array": b"\x90",
    "an unknown message": msgspec.msgpack.encode([99]),
    "a message of the broker": msgspec.msgpack.encode([20, 1, 2, 3, b"", True, []]),
    "a number beyond 64 bits": msgspec.msgpack.encode([32]) + b"\xcf" + b"\xff" * 8,
    "a kind that is negative": msgspec.msgpack.encode([-1]),
    "a kind that is text": msgspec.msgpack.encode(["Hello"]),
    "deeply nested arrays": b"\x91" * DEEP,
    "deeply nested maps": b"\x81\x00" * DEEP,
    "deep in a field": b"\x92\x18\x20" + b"\x91" * DEEP,
    "a message that is cut": msgspec.msgpack.encode([30, 1, "name", "client"])[:-3],
    "bytes behind the message": msgspec.msgpack.encode([2]) + b"\x02",
    "an array that claims 2^32 - 1 entries": b"\xdd\xff\xff\xff\xff\x16",
    "a text that claims 2^32 - 1 bytes": b"\x94\x1e\x01\xdb\xff\xff\xff\xff" + b"x" * 100,
    "a pickle": b"\x94\x1e\x01\xc4\x20cos\nsystem\n(S'touch /tmp/pwned'\ntR.",
    "a batch that is cut": b"\x01\x00\x00",
    "a head that is cut": CUT,
    "a delivery": b"\x02" + bytes(30),
}
"""What no message is."""


async def test_what_is_no_message_ends_the_session_with_a_reason(
    bystander: Bystander, subtests: pytest.Subtests
) -> None:
    """F01, F04, F12: a violation costs its sender the session, and nothing else."""
    for name, nonsense in NONSENSE.items():
        with subtests.test(name):
            async with welcome_client(bystander) as client:
                whole = payload(client.session, nonsense)
                await client.send_payloads(whole[:11] if nonsense is CUT else whole)

                *_, closing = await client.hear_all()
            assert isinstance(closing, Closing)
            assert closing.reason.startswith("protocol violation: ")
            assert bystander.is_undisturbed()


async def test_frames_that_break_the_framing_end_the_session(bystander: Bystander, subtests: pytest.Subtests) -> None:
    """F02, F03: the limit is another one now, and kept as strictly."""
    good = encode(0, hello())
    frames = {
        "length 0": bytes(8),
        "length 2^31": (1 << 31).to_bytes(4, "little") + bytes(4),
        "length 2^32 - 1": b"\xff" * 8,
        "one byte above the limit": (4 * MEBIBYTE + 1).to_bytes(4, "little") + bytes(4),
        "wrong checksum": wrong_checksum(encode_frame(good)),
        **{f"noise {seed}": noise(seed) for seed in range(8)},
    }
    for name, data in frames.items():
        with subtests.test(name):
            async with welcome_client(bystander) as client:
                await client.send(data)

                assert [type(message) for message in await client.hear_all()] == [Welcome, Closing]
            assert bystander.is_undisturbed()


async def test_the_operator_is_told_who_breaks_the_protocol_but_not_too_often(
    bystander: Bystander, caplog: pytest.LogCaptureFixture
) -> None:
    """With the peer and the client's id, and without what a client could paint with."""
    # What a client writes in the place of a known value stands in the error.
    subscribe = msgspec.msgpack.encode([Subscribe.__struct_config__.tag, 1, None, ["t"], "", "\x1b[31m", *[0] * 9])
    for begin in (b"\xc1", b"\x91\x63", subscribe, *[b"\xc1"] * 5):
        async with welcome_client(bystander) as client:
            await client.send_payloads(payload(client.session, begin))
            await client.hear_all()
    async with RawClient(bystander.address) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
        await client.hear_all()

    told = [record.getMessage() for record in caplog.records if "ended:" in record.getMessage()]
    assert len(told) == 5, "of one host in a minute"
    assert all(line.startswith("the connection with 127.0.0.1:") for line in told)
    assert all(", client 'attacker' ended: protocol violation: " in line for line in told)
    assert all(line.isprintable() for line in told)
    assert "[31m" in told[2]


async def test_the_operator_is_told_who_speaks_something_else(
    bystander: Bystander, caplog: pytest.LogCaptureFixture
) -> None:
    async with RawClient(bystander.address) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
        assert await client.hear_all() == []
        assert client.http.startswith(b"HTTP/1.1 400 ")
        assert b"[observe]" in client.http

    [told] = [record.getMessage() for record in caplog.records if "ended:" in record.getMessage()]
    assert "These bytes look like HTTP" in told


async def test_unfinished_frames_of_all_clients_together_have_a_budget(tmp_path: Path) -> None:
    """Forty with four mebibytes each, and all but the last bytes of them; who has room finishes, others wait."""
    most = 8 * MEBIBYTE
    listen: Any = [{"address": "127.0.0.1:0", "unfinished_max": most, "unfinished_patience": 0.1}]
    unfinished = encode_frame(bytes(4 * MEBIBYTE))[:-10]
    async with (
        bystanding(tmp_path / "volume", listen=listen) as bystander,
        contextlib.AsyncExitStack() as stack,
    ):
        with tracing() as growth:
            clients = [await stack.enter_async_context(RawClient(bystander.address)) for _ in range(100)]
            for number, client in enumerate(clients):
                await client.shake_hands(str(number))
            sending = [asyncio.ensure_future(in_portions(client, unfinished)) for client in clients]
            for _ in range(20):
                await bystander.works()
                await asyncio.sleep(0.05)
            peak = growth()
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        assert bystander.is_undisturbed()
        closing = await clients[0].hear(Closing)

    assert peak < 2 * most + len(clients) * MEBIBYTE // 4, "and what the senders hold"
    assert closing.reason == "a frame of 4194304 bytes was not finished within 0.1 s, and others wait"


async def in_portions(client: RawClient, data: bytes) -> None:
    """Sends it as the broker takes it, so that it does not pile up here."""
    for start in range(0, len(data), 1 << 16):
        await client.send(data[start : start + (1 << 16)])


@pytest.mark.parametrize("own", [False, True], ids=["without a session", "in the session"])
async def test_a_second_hello_ends_the_session(bystander: Bystander, own: bool) -> None:
    """F06: each message of the handshake is good once."""
    async with welcome_client(bystander) as client:
        await client.send_payloads(encode(client.session if own else 0, hello(client_id="another")))

        *_, closing = await client.hear_all()
    assert isinstance(closing, Closing)
    assert "second Hello" in closing.reason


async def test_a_session_can_say_nothing_in_the_name_of_another(bystander: Bystander) -> None:
    """Session epochs: frames of another session, a living one too, are ignored; one's own are heard."""
    async with welcome_client(bystander) as victim, RawClient(bystander.address) as client:
        opened = await victim.open_publisher("work")
        await client.shake_hands("other")
        batch = Publish(1, opened.epoch, 1, columns(b"forged", topic="work"), b"")
        for session in (victim.session, client.session - (1 << 32), client.session + 1, (1 << 64) - 1):
            await client.send_payloads(
                b"".join(encode_publish(session, batch)), encode(session, Unsubscribe(1, "s", "bystander"))
            )

            assert await client.is_alive()
        assert await victim.is_alive()
        assert (client.heard_of(Published), victim.heard_of(Published)) == ([], [])


# ------------------------------------------------------------------------------------------------ publishing


def event(topic: Any = "noise", properties: Any = None, extras: Any = None, body: Any = b"body") -> bytes:
    """An event of any values."""
    return msgspec.msgpack.encode([topic, properties or {}, extras, body])


def batch(*events: bytes, bodies: Any = None, lengths: Any = None, count: int | None = None) -> bytes:
    """Count, lengths and events of a batch, as claimed."""
    wholes = list(map(len, events)) if lengths is None else lengths
    parts = [4] * len(wholes) if bodies is None else bodies
    pairs = b"".join(struct.pack("<II", *pair) for pair in zip(wholes, parts, strict=True))
    return struct.pack("<I", len(wholes) if count is None else count) + pairs + b"".join(events)


def nested(depth: int) -> bytes:
    """An event with a property that is an array in an array, and so on."""
    return b"\x94\xa5noise\x81\xa1n" + b"\x91" * depth + b"\xc0\xc0\xc4\x04body"


GOOD = event()
BAD_BATCHES = {
    "no event": batch(),
    "more events than lengths": batch(GOOD, count=2),
    "2^32 - 1 events": batch(GOOD, count=(1 << 32) - 1),
    "fewer events than lengths": batch(GOOD, GOOD, count=1),
    "bytes behind the events": batch(GOOD) + b"x",
    "an event that is cut": batch(GOOD)[:-1],
    "a length of 2^32 - 1": batch(GOOD, lengths=[(1 << 32) - 1]),
    "lengths that add up to another": batch(GOOD, GOOD, lengths=[len(GOOD), len(GOOD) + 1]),
    "lengths that cut elsewhere": batch(GOOD, GOOD, lengths=[len(GOOD) + 1, len(GOOD) - 1]),
    "a body longer than its event": batch(GOOD, bodies=[len(GOOD) + 1]),
    "a body one byte short": batch(GOOD, bodies=[3]),
    "an event that is no array": batch(msgspec.msgpack.encode({"topic": "noise"}), bodies=[0]),
    "an event without a body": batch(msgspec.msgpack.encode(["noise", {}, None])),
    "an event of five parts": batch(msgspec.msgpack.encode(["noise", {}, None, b"body", b"more"])),
    "a body that is text": batch(event(body="body")),
    "zero bytes": batch(bytes(20)),
    "a topic that is a number": batch(event(topic=5)),
    "no topic": batch(event(topic="")),
    "a wildcard": batch(event(topic="noise.*")),
    "a trailing wildcard": batch(event(topic="noise.#")),
    "an empty level": batch(event(topic="noise..noise")),
    "a topic of 256 bytes": batch(event(topic="x" * 256)),
    "a topic that is no UTF-8": batch(b"\x94\xa2\xff\xff\x80\xc0\xc4\x04body"),
    "a property that is an array": batch(event(properties={"n": [1]})),
    "a property that is a map": batch(event(properties={"n": {}})),
    "a property that is null": batch(event(properties={"n": None})),
    "a property that is bytes": batch(event(properties={"n": b"x"})),
    "a property with a number for a name": batch(event(properties={1: 1})),
    "a property without a name": batch(event(properties={"": 1})),
    "a property of 2^63": batch(event(properties={"n": 1 << 63})),
    "a property that is infinite": batch(event(properties={"n": float("inf")})),
    "a property that is not a number": batch(event(properties={"n": float("nan")})),
    "a property nested deeply": batch(nested(DEEP)),
    "headers that are text": batch(event(extras="text")),
    "a priority of 10": batch(event(extras=[10])),
    "a priority of -1": batch(event(extras=[-1])),
    "a priority of 2^64 - 1": batch(event(extras=[(1 << 64) - 1])),
    "an expiration before 1970": batch(event(extras=[4, -1])),
    "an expiration of 2^63 ms": batch(event(extras=[4, 1 << 63])),
    "an expiration in the year 10000": batch(event(extras=[4, 253_402_300_800_000])),
    "one bad event among good ones": batch(GOOD, event(topic="noise.*"), GOOD),
    "an event of more than 1 MiB": batch(event(body=bytes(MEBIBYTE)), bodies=[MEBIBYTE]),
}
"""Batches that must not be logged, not even in part: somebody would have to read them."""


async def test_a_bad_batch_is_refused_as_a_whole_with_the_reason(
    bystander: Bystander, subtests: pytest.Subtests
) -> None:
    """F04, F11, INV18: the batch is refused, or the session if it is none; the next batch has its sequences."""
    for name, columns_ in BAD_BATCHES.items():
        with subtests.test(name):
            async with welcome_client(bystander) as client:
                opened = await client.open_publisher()
                head = struct.pack("<QQBIQQ", client.session, 0, 1, 1, opened.epoch, opened.sequence + 1)
                await client.send_payloads(head + columns_)

                answer = await client.hear(PublishRefused | Closing)
                if isinstance(answer, PublishRefused):
                    assert (answer.code, answer.sequence) == (Code.INVALID_MESSAGE, opened.sequence + 1)
                    assert await client.is_alive()
                else:
                    assert isinstance(answer, Closing)
                    assert answer.reason.startswith("protocol violation: ")
                assert answer.reason
                assert client.heard_of(Published) == []
            assert bystander.is_undisturbed()


PUBLISHERS = {
    "a publisher that is not open": {"publisher": 2},
    "publisher 2^32 - 1": {"publisher": (1 << 32) - 1},
    "epoch 0": {"epoch": 0},
    "epoch 2^64 - 1": {"epoch": (1 << 64) - 1},
    "sequence 0": {"first": 0},
    "sequence 2": {"first": 2},
    "sequence 2^63 - 1": {"first": (1 << 63) - 1},
    "sequence 2^63": {"first": 1 << 63},
    "sequence 2^64 - 1": {"first": (1 << 64) - 1},
}


async def test_a_batch_out_of_its_place_is_not_logged(bystander: Bystander, subtests: pytest.Subtests) -> None:
    """Of a publisher, an epoch or a sequence that is not its turn."""
    for name, place in PUBLISHERS.items():
        with subtests.test(name):
            async with welcome_client(bystander) as client:
                opened = await client.open_publisher()
                assert opened.sequence == 0
                where = {"publisher": 1, "epoch": opened.epoch, "first": 1, **place}
                head = struct.pack("<QQBIQQ", client.session, 0, 1, *where.values())
                await client.send_payloads(head + batch(GOOD))

                answer = await client.hear(PublishRefused | Closing)
                assert answer is not None
                assert answer.reason
                assert client.heard_of(Published) == []
            assert bystander.is_undisturbed()


async def test_a_frame_above_the_limit_is_not_even_read(bystander: Bystander) -> None:
    """What the broker has said it takes, it holds everyone to."""
    async with welcome_client(bystander) as client:
        opened = await client.open_publisher()
        events = [event(body=bytes(MEBIBYTE - 1000))] * 5
        message = Publish(1, opened.epoch, 1, EventColumns.of(events, [MEBIBYTE - 1000] * 5), b"")
        await client.say(message)

        assert await client.hear(Published) is None
    assert client.closed


# --------------------------------------------------------------------------------------------------- memory


async def test_what_is_only_announced_costs_no_memory(bystander: Bystander) -> None:
    """F02: frames as large as is allowed, begun by many, before and after the handshake."""
    count, begun = 50, 1000
    claimed = count * 4 * MEBIBYTE
    async with contextlib.AsyncExitStack() as stack:
        unknown = [await stack.enter_async_context(RawClient(bystander.address)) for _ in range(count)]
        known = [await stack.enter_async_context(RawClient(bystander.address)) for _ in range(count)]
        for number, client in enumerate(known):
            await client.shake_hands(str(number))
        with tracing() as growth:
            for clients, length in ((unknown, 4096), (known, 4 * MEBIBYTE)):
                for client in clients:
                    await client.send(length.to_bytes(4, "little") + bytes(4) + bytes(begun))
            await bystander.works()
            peak = growth()

        assert peak < claimed / 20
        assert bystander.is_undisturbed()
    bystander.before = await bystander.listing()


@contextlib.contextmanager
def tracing() -> Iterator[Callable[[], int]]:
    """Memory is traced; the result tells how much it has grown at most since the beginning."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield lambda: tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------ fuzz


class Stage:
    """A broker and its bystander on a loop of their own, for tests that Hypothesis calls many times."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = contextlib.AsyncExitStack()
        self.bystander = self.run(self._stack.enter_async_context(bystanding(directory, **QUICK)))

    def run(self, main: Coroutine[Any, Any, Value]) -> Value:
        """Runs to the end."""
        return self._loop.run_until_complete(main)

    def close(self) -> None:
        """Stops the broker."""
        self.run(self._stack.aclose())
        self._loop.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A broker that lives through many examples."""
    stage = Stage(tmp_path / "volume")
    yield stage
    stage.close()


def mutated(frames: list[bytes], mutation: tuple[str, float, float, bytes]) -> list[bytes]:
    """The payloads with one of them changed as `mutation` says: how, which, where, and with what."""
    kind, which, where, what = mutation
    index = int(which * len(frames))
    target = frames[index]
    at = int(where * len(target))
    if kind == "number":
        target = with_other_number(target, where, int.from_bytes(what, "big"))
    elif kind == "cut":
        target = target[:at]
    elif kind == "insert":
        target = target[:at] + what + target[at:]
    elif kind == "overwrite":
        target = target[:at] + what + target[at + len(what) :]
    elif kind == "take from another":
        other = frames[int(where * len(frames))]
        target = target[:HEAD_BYTES] + other[HEAD_BYTES : HEAD_BYTES + int(where * len(other))] + target[HEAD_BYTES:]
    else:
        assert kind == "repeat"
        return [*frames[:index], target, *frames[index:]]
    return [*frames[:index], target or b"\x00", *frames[index + 1 :]]


def with_other_number(target: bytes, where: float, number: int) -> bytes:
    """A control message with one of its numbers replaced; of a batch, a number of its head."""
    try:
        found = list(variants(msgspec.msgpack.decode(target[HEAD_BYTES:]), number))
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = []
    if not found:
        at = HEAD_BYTES + 1 + 4 * int(where * 6)
        return target[:at] + struct.pack("<I", number & 0xFFFFFFFF) + target[at + 4 :]
    return target[:HEAD_BYTES] + msgspec.msgpack.encode(found[int(where * len(found))])


MUTATIONS = st.tuples(
    st.sampled_from(["number", "cut", "insert", "overwrite", "take from another", "repeat"]),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=8),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATIONS, min_size=1, max_size=4), chop=st.sampled_from([50, 300, 1 << 20]))
def test_no_mutation_of_a_conversation_hurts(
    stage: Stage, mutations: list[tuple[str, float, float, bytes]], chop: int
) -> None:
    """Frames as a client sends them, changed inside and framed anew, so that the checksum lets them pass."""
    stage.run(converse(stage.bystander, mutations, chop))


async def converse(bystander: Bystander, mutations: list[tuple[str, float, float, bytes]], chop: int) -> None:
    """Says all a client says, but for the mutations; then the broker must be as well as before."""
    async with welcome_client(bystander) as client:
        opened = await client.open_publisher()
        sid, pubend, tick = await attached(client)
        publish = Publish(1, opened.epoch, opened.sequence + 1, EventColumns.of([event(), event()], [4, 4]), b"")
        messages = [publish, *requests(pubend, tick, sid), Heartbeat()]
        frames = client.wire.unnumbered(*[message for message in messages if not isinstance(message, Hello)])
        for mutation in mutations:
            frames = mutated(frames, mutation)
        data = b"".join(encode_frame(client.wire.numbered(frame)) for frame in frames)
        for start in range(0, len(data), chop):
            await client.send(data[start : start + chop])
        if not await client.is_alive():
            assert all(message.reason for message in client.heard_of(Closing))
    await bystander.works()
    assert bystander.is_undisturbed()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200), known=st.booleans(), framed=st.booleans())
def test_no_bytes_hurt(stage: Stage, data: bytes, known: bool, framed: bool) -> None:
    """Anything at all, in a frame and without one, before and after the handshake."""

    async def attack() -> None:
        async with RawClient(stage.bystander.address) as client:
            if known:
                await client.shake_hands()
            await client.send(encode_frame(payload(client.session, data)) if framed else data)
            await client.finish()
            await client.hear_all()
        assert stage.bystander.is_undisturbed()

    stage.run(attack())


async def test_everything_that_was_logged_meanwhile_can_be_read(tmp_path: Path) -> None:
    """The other side of refusing: what is taken from a client of whatever make, every other one can read."""
    odd = [
        event(properties={"x" * 10_000: 1}),
        event(properties={"n": -(1 << 63), "m": (1 << 63) - 1, "t": True, "f": 5e-324, "s": "\0"}),
        event(extras=[9, 253_402_300_799_999, "c" * 1000, "any.topic", "t"]),
        event(extras=[]),
        event(topic="x" * 255),
        event(topic="größe.大.\u200b"),
        event(body=b""),
    ]
    async with running_node(tmp_path / "volume") as node:
        async with RawClient(node.address) as client:
            await client.shake_hands()
            opened = await client.open_publisher()
            await client.say(Publish(1, opened.epoch, 1, EventColumns.of(odd, [4, 4, 4, 4, 4, 4, 0]), b""))
            published = await client.hear(Published | PublishRefused | Closing)
        assert isinstance(published, Published), published
        async with gapless.connect(node.url) as connection, connection.session() as session:
            async with session.subscribe("#", start="earliest", selector="n IS NULL OR n < 0") as subscription:
                for _ in odd:
                    got = await asyncio.wait_for(subscription.__anext__(), 10)
                    assert isinstance(got, gapless.Event)
                    assert got.priority in range(10)
                    assert got.expiration is None or got.expiration.year == 9999
                    assert all(isinstance(name, str) for name in got.properties)

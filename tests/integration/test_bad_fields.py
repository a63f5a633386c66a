"""Whatever stands in the fields of a client's messages: answered, refused or a violation, and nobody else notices.

F04, F11, INV14. Everything goes to a real node on RocksDB over TCP, beside a client at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import gapless
from gapless.core.wire.messages import (
    Acknowledge,
    Acknowledged,
    AnyClientMessage,
    Attach,
    Closing,
    Code,
    Detach,
    Detached,
    Goodbye,
    Heartbeat,
    RequestFailed,
    Sharing,
    StartAt,
    Subscribed,
)
from integration.bad_messages import (
    QUICK,
    attached,
    commit,
    of_sharing,
    requests,
    subscribe,
    variants,
    welcome_client,
)
from integration.bystander import Bystander, bystanding
from integration.nodes_in_process import running_node
from integration.raw_client import payload

pytestmark = pytest.mark.timeout(60)


NUMBERS = (-1, 0, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63))


def test_every_message_of_a_client_is_among_them() -> None:
    """Whoever adds one adds it to what is tried here: ranges were not, and had a way to fell the broker."""
    said = {type(message) for message in requests("", 0, 0)}

    assert said == set(get_args(AnyClientMessage)) - {Heartbeat, Goodbye}


@pytest.mark.parametrize("value", NUMBERS)
async def test_no_number_in_any_message_hurts(tmp_path: Path, subtests: pytest.Subtests, value: int) -> None:
    """Negative ones and huge ones in every place that holds a number: answered, refused or a violation."""
    async with bystanding(tmp_path / "volume", **QUICK) as bystander:
        for number in range(len(requests("", 0, 0))):
            async with welcome_client(bystander) as client:
                sid, pubend, tick = await attached(client)
                plain = msgspec.msgpack.decode(msgspec.msgpack.encode(requests(pubend, tick, sid)[number]))
                for variant in variants(plain, value):
                    with subtests.test(repr(variant)):
                        await client.send_payloads(payload(client.session, msgspec.msgpack.encode(variant)))
                        if not await client.is_alive():
                            assert client.heard_of(Closing)[0].reason.startswith("protocol violation: ")
                            await client.connect_again()
                            await attached(client)
                        await bystander.works()
                        assert bystander.is_undisturbed()
        before = await bystander.listing()
        number = bystander.number
    async with (
        running_node(tmp_path / "volume") as node,
        gapless.connect(node.url, client_id="bystander") as connection,
    ):
        async with connection.session() as session, session.subscribe("#", start="earliest") as everything:
            bodies = [(await asyncio.wait_for(everything.__anext__(), 10)).body for _ in range(number)]
        names = [(info.client_id, info.name) for info in await connection.subscriptions()]

    assert bodies == [b"%d" % n for n in range(1, number + 1)]
    assert names == [row[:2] for row in before[0]]


@pytest.mark.parametrize("value", NUMBERS)
async def test_no_number_in_a_commit_hurts(tmp_path: Path, value: int) -> None:
    """Of a consumer that commits, under the epoch that it has: what is taken is written at once."""
    places = len(list(variants(msgspec.to_builtins(commit(1, 1, "", 1)), value)))
    async with bystanding(tmp_path / "volume", **QUICK) as bystander:
        for place in range(places):
            async with welcome_client(bystander) as client:
                await client.say(subscribe(name="durable", commits=True))
                answer = await client.hear(Subscribed)
                [position] = answer.positions
                plain = msgspec.to_builtins(commit(answer.sid, answer.epoch, position.pubend, position.tick))
                variant = list(variants(plain, value))[place]
                await client.send_payloads(payload(client.session, msgspec.msgpack.encode(variant)))
                if not await client.is_alive():
                    assert client.heard_of(Closing)[0].reason.startswith("protocol violation: "), variant
                await bystander.works()
                assert bystander.is_undisturbed(), variant


@pytest.mark.parametrize("value", NUMBERS)
async def test_no_number_of_who_shares_hurts(tmp_path: Path, value: int) -> None:
    """What a consumer of a shared subscription says of events, whether it holds them or not."""
    async with bystanding(tmp_path / "volume", **QUICK) as bystander:
        said = [msgspec.to_builtins(each) for each in of_sharing(1, "", 1)]
        places = [(at, place) for at, plain in enumerate(said) for place in range(len(list(variants(plain, value))))]
        for at, place in places:
            async with welcome_client(bystander) as client:
                _, pubend, tick = await attached(client)
                await client.say(subscribe(request=9, name="jobs", sharing=Sharing(100, durable=True)))
                answer = await client.hear(Subscribed)
                plain = msgspec.to_builtins(of_sharing(answer.sid, pubend, tick)[at])
                variant = list(variants(plain, value))[place]
                await client.send_payloads(payload(client.session, msgspec.msgpack.encode(variant)))
                if not await client.is_alive():
                    assert client.heard_of(Closing)[0].reason.startswith("protocol violation: "), variant
                await bystander.works()
                assert bystander.is_undisturbed(), variant


TEXTS = ("", "\n", "a\x1b[31mred\x1b]0;title\x07\nforged row", "\x00", "x" * 256, "ü" * 100_000, "\u202e", "a.b.#", "@")


def texts_replaced(message: Any, text: str) -> Iterator[Any]:
    """The message, as lists and values, with each text of it in turn replaced."""
    if isinstance(message, str):
        yield text
    elif isinstance(message, list):
        for index, part in enumerate(message):
            for variant in texts_replaced(part, text):
                yield [*message[:index], variant, *message[index + 1 :]]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:10]))
async def test_no_text_in_any_message_hurts(tmp_path: Path, subtests: pytest.Subtests, text: str) -> None:
    """Empty ones, huge ones and such as paint: answered, refused or a violation, and nobody else notices."""
    async with bystanding(tmp_path / "volume", **QUICK) as bystander:
        for number in range(len(requests("", 0, 0))):
            async with welcome_client(bystander) as client:
                sid, pubend, tick = await attached(client)
                plain = msgspec.msgpack.decode(msgspec.msgpack.encode(requests(pubend, tick, sid)[number]))
                for variant in texts_replaced(plain, text):
                    with subtests.test(ascii(variant)[:200]):
                        await client.send_payloads(payload(client.session, msgspec.msgpack.encode(variant)))
                        if not await client.is_alive():
                            assert client.heard_of(Closing)[0].reason.startswith("protocol violation: ")
                            await client.connect_again()
                            await attached(client)
                        assert bystander.is_undisturbed()
            await bystander.works()


BAD_NAMES = {
    "empty": ("", "is empty"),
    "a line break": ("a\nb", "cannot be printed"),
    "what paints": ("\x1b[31mred", "cannot be printed"),
    "256 bytes": ("x" * 256, "longer than 255 bytes"),
}


@pytest.mark.parametrize(("name", "reason"), BAD_NAMES.values(), ids=BAD_NAMES)
async def test_a_subscription_is_not_called_so(bystander: Bystander, name: str, reason: str) -> None:
    """The empty one felled the broker, and all sessions with it; each is told why it is refused, and goes on."""
    async with welcome_client(bystander) as client:
        await client.say(
            Attach(1, name, ("noise",), "", StartAt.LATEST, 0, None, 0, 0, b""), subscribe(request=2, name=name)
        )

        for request in (1, 2):
            failed = await client.hear(RequestFailed)
            assert (failed.request, failed.code) == (request, Code.CONFIGURATION)
            assert reason in failed.reason
        assert await client.is_alive()


async def test_a_subscription_to_half_a_million_topics_is_refused_at_once(bystander: Bystander) -> None:
    """It stood in everybody's way for four seconds, and for ten when the broker started again."""
    async with welcome_client(bystander) as client:
        await client.say(subscribe(name="many", topics=tuple(f"t{n}" for n in range(500_000))))

        failed = await client.hear(RequestFailed)
        assert failed.code is Code.INVALID_TOPIC
        assert failed.reason == "a subscription has at most 1024 topic patterns, this one has 500000"
        assert await client.is_alive()


async def test_who_acknowledges_the_future_hurts_nobody_else_and_is_told(tmp_path: Path) -> None:
    """A position that no pubend reaches is an error to its owner, not a wait without an end (INV17)."""
    async with bystanding(tmp_path / "volume", **QUICK) as bystander, welcome_client(bystander) as client:
        sid, pubend, tick = await attached(client)
        future = (1 << 63) - 1
        await client.say(Acknowledge(sid, [Acknowledged(pubend, future, future)]), Detach(sid))
        await bystander.works()
        assert await client.is_alive()
        [pubend_info] = await bystander.pubends()
        await client.say(subscribe(name="durable"))
        again = await client.hear(Subscribed)

        assert pubend_info.lost == 0, "what the bystander had is all there"
        if again.positions[0].tick > tick:
            detached = await client.hear(Detached)
            assert detached.code is Code.TOKEN_AHEAD
        await bystander.works()
        assert bystander.is_undisturbed()

"""What is checked before anything is sent: bodies, properties, topics, headers."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import pytest

import gapless
from gapless.client.messages import Encoder
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import PUBEND, logged
from unit.gapless.client.fake_network import FakeNetwork


async def test_headers_arrive_as_they_were_sent(network: FakeNetwork) -> None:
    at = datetime(2090, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t") as subscription:
            await session.publisher("t").send(
                b"x", priority=7, expiration=at, correlation_id="c", reply_to="r", type="y"
            )
            event = await anext(subscription)

    assert (event.priority, event.expiration, event.correlation_id) == (7, at, "c")
    assert (event.reply_to, event.type, event.body) == ("r", "y", b"x")


async def test_a_message_that_has_expired_already_is_warned_of(network: FakeNetwork) -> None:
    """It is logged, and nobody gets it."""
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.warns(UserWarning, match="expired before it was sent"):
            await session.publisher("t").send(b"x", expiration=datetime(2024, 1, 1, tzinfo=timezone.utc))


def test_a_message_is_printed_on_a_line_of_bounded_length() -> None:
    assert len(str(gapless.Message(bytes(1 << 20), {"text": "x" * 10_000}))) < 400
    assert str(gapless.Message(b"x", {"a": 1}, priority=7)) == "Message(body=b'x', properties={'a': 1}, priority=7)"


class Colour(IntEnum):
    RED = 3


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another text"


class Origin(str, Enum):
    KENNEDY = "JFK"


class Count(int):
    def __int__(self) -> int:
        return -1


class Real(float):
    def __float__(self) -> float:
        return -1.0


async def test_properties_are_bool_int_float_and_str(network: FakeNetwork) -> None:
    given: dict[str, Any] = {
        "bool": True,
        "least": -(2**63),
        "most": 2**63 - 1,
        "float": 1.5,
        "text": "é",
        "absent": None,
        "enum": Colour.RED,
        "subclass": Text("x"),
        "text enum": Origin.KENNEDY,
        "count": Count(5),
        "real": Real(2.5),
        Text("named by a subclass"): 1,
        "any name, with spaces": 1,
    }
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        await session.publisher("t").send(b"", properties=given)

    (header,) = network.broker.streams[PUBEND].headers
    expected = {
        **given,
        "enum": 3,
        "subclass": "x",
        "text enum": "JFK",
        "count": 5,
        "real": 2.5,
    }
    del expected["absent"]
    assert header.properties == expected
    assert {name: type(value) for name, value in header.properties.items()}["bool"] is bool


@pytest.mark.parametrize(
    "properties",
    [
        {"a": 2**63},
        {"a": -(2**63) - 1},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": b"bytes"},
        {"a": [1]},
        {"a": "\ud800"},
        {"a\udc80": 1},
        {"a\x1b[2J": 1},
        {"a\x9b": 1},
        {"fine": 1, "a\u202e": 1},
        {"a": Decimal(250)},
        {"a": Fraction(1, 2)},
        {"a": datetime(2030, 1, 1, tzinfo=timezone.utc)},
        {1: "a"},
        {"": "a"},
        ["a"],
    ],
    ids=str,
)
async def test_a_wrong_property_is_refused_before_anything_is_sent(network: FakeNetwork, properties: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        with pytest.raises(gapless.InvalidMessageError):
            await publisher.send(b"x", properties=properties)
        with pytest.raises(gapless.InvalidMessageError):
            await anext(publisher.send_all([gapless.Message(b"x", properties)]))
        with pytest.raises(gapless.InvalidMessageError):
            await connection.publish("p", 0, 0, [gapless.Message(b"x", properties)], topic="t")
        with pytest.raises(gapless.InvalidMessageError):
            await publisher.send_batch([gapless.Message(b"fine"), gapless.Message(b"x", properties)])

    assert network.broker.messages(m.Publish) == []


async def test_scalars_of_numpy_are_what_they_are_or_refused(network: FakeNetwork) -> None:
    numpy = pytest.importorskip("numpy")
    taken = {"float": numpy.float64(1.5), "text": numpy.str_("q")}
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        await publisher.send(b"", taken)
        await publisher.send_batch([gapless.Message(b"", taken)])
        for wrong in (numpy.int64(3), numpy.float32(1.5), numpy.bool_(1)):
            with pytest.raises(gapless.InvalidMessageError, match=r"is a numpy\.\w+: .* \.item\(\)"):
                await publisher.send(b"", {"a": wrong})

    assert [header.properties for header in network.broker.streams[PUBEND].headers] == [{"float": 1.5, "text": "q"}] * 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"body": "text"}, "encode it first"),
        ({"body": 5}, "bytes-like, not int"),
        ({"body": None}, "bytes-like, not NoneType"),
        ({"body": b"", "priority": 10}, "0 to 9"),
        ({"body": b"", "priority": "high"}, "0 to 9"),
        ({"body": b"", "expiration": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"body": b"", "expiration": 5}, "time zone"),
        ({"body": b"", "correlation_id": 5}, "correlation_id is a str"),
        ({"body": b"", "type": b"x"}, "type is a str"),
        ({"body": b"", "type": "\ud800"}, "type holds half a surrogate pair"),
        ({"body": b"", "correlation_id": "a\udc80"}, "correlation_id holds half a surrogate pair"),
    ],
)
async def test_a_wrong_message_is_refused(network: FakeNetwork, arguments: Any, error: str) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidMessageError, match=error):
            await session.publisher("t").send(**arguments)


@pytest.mark.parametrize("topic", ["", "a..b", "a.*", "#", "x" * 256, 5, "a.\ud800", "a.\x1b[2J"])
async def test_a_wrong_topic_is_refused(network: FakeNetwork, topic: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidTopicError):
            session.publisher(topic)
        with pytest.raises(gapless.InvalidTopicError):
            await session.publisher("t").send(b"", topic=topic)
        if topic != 5:
            with pytest.raises(gapless.InvalidTopicError):
                await session.publisher("t").send(b"", reply_to=topic or ".")


@pytest.mark.parametrize("body", [bytearray(b"xy"), memoryview(b"xy"), b"xy"])
async def test_a_body_is_anything_like_bytes(network: FakeNetwork, body: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        await session.publisher("t").send(body)

    assert logged(network.broker) == [b"xy"]


@pytest.mark.parametrize("properties", [{}, {"k": 1}, {"k": 1, "JMSXAppID": "somebody"}, {"k": None}])
def test_every_event_of_one_who_identifies_itself_says_whose_it_is(properties: Any) -> None:
    """One by one, and many at a time; what the application says of that does not count."""
    encoder, plain = Encoder("t", "me"), Encoder("t", "")
    message = gapless.Message(b"x", properties)
    expected = {name: value for name, value in properties.items() if value is not None} | {"JMSXAppID": "me"}

    told = gapless.Message(b"x", expected)
    assert encoder.encode(message, 1000) == plain.encode(told, 1000)
    assert encoder.encode_all([message], 1000).columns.blob == plain.encode_all([told], 1000).columns.blob


def test_what_are_no_properties_is_refused_also_of_one_who_identifies_itself() -> None:
    with pytest.raises(gapless.InvalidMessageError, match="properties are a mapping"):
        Encoder("t", "me").encode(gapless.Message(b"x", 7), 1000)  # type: ignore[arg-type]
    assert isinstance(
        Encoder("t", "me").encode_all([gapless.Message(b"x", 7)], 1000).error,  # type: ignore[arg-type]
        gapless.InvalidMessageError,
    )


@pytest.mark.parametrize(("body", "hint"), [("x", "encode it first"), (gapless.Message(b"x"), "goes to submit")])
async def test_who_gives_another_thing_than_a_body_is_told_where_it_goes(
    network: FakeNetwork, body: Any, hint: str
) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidMessageError, match=hint):
            await session.publisher("t").send(body)

"""No field of a client's message is without a bound, and what is beyond one is refused before anybody acts on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from gapless.core.wire.messages import (
    AnyClientMessage,
    Attach,
    Code,
    Extend,
    Holds,
    InUse,
    Kind,
    OpenPublisher,
    Position,
    PublishKeyed,
    Retire,
    Settle,
    Sharing,
    StartAt,
    Subscribe,
    Take,
    TakeLease,
    Target,
    Unsubscribe,
    Verdict,
)
from gapless.core.wire.messages.checks import CHECKS, problem_of
from gapless.core.wire.token_room import PUBENDS_MAX
from gapless.texts import NAME_BYTES_MAX
from wire import columns

CLIENT_MESSAGES = get_args(AnyClientMessage)
UNBOUNDED = {"Hello.protocol"}
"""Any number may be said there: it is only compared."""


def unbounded(kind: inspect.Type, where: str) -> Iterator[str]:
    """The places within a type that have no bound of their own."""
    if isinstance(kind, inspect.IntType):
        if kind.ge is None or kind.le is None:
            yield where
    elif isinstance(kind, (inspect.StrType, inspect.BytesType, inspect.ListType, inspect.VarTupleType)):
        if kind.max_length is None:
            yield where
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from unbounded(one, where)
    else:
        assert isinstance(kind, (inspect.StructType, inspect.EnumType, inspect.NoneType, inspect.BoolType)), kind


def test_no_field_of_a_clients_message_is_without_a_bound() -> None:
    """A new message is to say what may be in it: here, or in its declaration."""
    missing: list[str] = []
    for message in CLIENT_MESSAGES:
        info = inspect.type_info(message)
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            if field.name not in CHECKS.get(message, {}):
                missing += unbounded(field.type, f"{message.__name__}.{field.name}")

    assert set(missing) == UNBOUNDED


def test_every_field_that_is_judged_is_there() -> None:
    for message, checks in CHECKS.items():
        assert set(checks) <= set(message.__struct_fields__), message  # type: ignore[attr-defined]


def attach(**fields: Any) -> Attach:
    given: dict[str, Any] = {"name": "s", "topics": ("t",), "positions": None} | fields
    return Attach(1, given["name"], given["topics"], "", StartAt.LATEST, 0, given["positions"], 0, 0, b"")


def sharing(*holds: Holds) -> Subscribe:
    wishes = Sharing(1, durable=True, holds=holds)
    return Subscribe(1, "s", ("t",), "", StartAt.LATEST, 0, None, 0, 0, b"", [], InUse.ERROR, 0, 0, sharing=wishes)


def settle(*holds: Holds) -> Settle:
    return Settle(1, 1, tuple(Verdict(Kind.ACKNOWLEDGE, each) for each in holds))


BAD = {
    "an empty name": (attach(name=""), Code.CONFIGURATION, "name is empty"),
    "a name with a line break": (attach(name="a\nb"), Code.CONFIGURATION, "cannot be printed"),
    "a name that paints": (attach(name="\x1b[31mred"), Code.CONFIGURATION, "cannot be printed"),
    "a long name": (attach(name="ü" * 128), Code.CONFIGURATION, "longer than 255 bytes"),
    "too many positions": (
        attach(positions=[Position(f"p{n}@x", 5) for n in range(PUBENDS_MAX + 1)]),
        Code.INVALID_TOKEN,
        "16,385 positions",
    ),
    "a position of what is no name": (attach(positions=[Position("p\x00", 5)]), Code.INVALID_TOKEN, "no name"),
    "a publisher without a name": (OpenPublisher(1, "", "i", 1, None), Code.REJECTED, "name is empty"),
    "a publisher without an instance": (OpenPublisher(1, "p", "", 1, None), Code.REJECTED, "instance is empty"),
    "a long topic": (OpenPublisher(1, "p", "i", 1, "t" * 256), Code.INVALID_TOPIC, "256 bytes"),
    "a producer without a name": (PublishKeyed(1, 1, 1, "", "", columns(b"x")), Code.REJECTED, "name is empty"),
    "an index beyond 63 bits": (PublishKeyed(1, 1, 1 << 63, "p", "", columns(b"x")), Code.REJECTED, "beyond"),
    "an owner with a line break": (TakeLease(1, Target("s"), "a\nb", InUse.ERROR), Code.CONFIGURATION, "printed"),
    "a long target": (TakeLease(1, Target("s" * 256), "a", InUse.ERROR), Code.NOT_FOUND, "256 bytes"),
    "fewer numbers than ticks": (Take(1, Holds("p@x", (1, 2), (1,))), Code.CONFIGURATION, "not every event"),
    "ticks that are not in order": (settle(Holds("p@x", (2, 1), (1, 2))), Code.CONFIGURATION, "not in order"),
    "a delivery twice": (Extend(1, Holds("p@x", (2, 2), (1, 1))), Code.CONFIGURATION, "not in order"),
    "a resumption that is not in order": (
        sharing(Holds("p@x", (2, 1), (1, 2))),
        Code.CONFIGURATION,
        "not in order",
    ),
    "a long SHB": (Retire(1, "s" * 256), Code.NOT_FOUND, "256 bytes"),
}


@pytest.mark.parametrize(("message", "code", "reason"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_said(message: msgspec.Struct, code: Code, reason: str) -> None:
    problem = problem_of(message)

    assert problem is not None
    assert problem.code is code
    assert reason in problem.reason


@pytest.mark.parametrize(
    "message",
    [
        attach(name="x" * NAME_BYTES_MAX),
        attach(name="größe 大", positions=[Position(f"p{n}@x", 5) for n in range(PUBENDS_MAX)]),
        OpenPublisher(1, "p", "i", 1, None),
        settle(Holds("p@x", (1, 2), (7, 3)), Holds("q@x", (), ())),
        Unsubscribe(1, "what an older\nvolume has" * 100_000, ""),
    ],
    ids=["long", "many", "publisher", "settlement", "removal"],
)
def test_what_is_right_is_taken(message: msgspec.Struct) -> None:
    assert problem_of(message) is None

"""The parts of a range with any edges, of a broker that takes only some ticks for positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gapless.core.client import Delivery, Gap
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import TokenAheadError
from gapless_spark.parts import parts_of, within

SUBSCRIPTION = CheckpointToken("0" * 32, {}, 1, 1, b"")


def delivery(*ticks: int) -> Delivery:
    columns = EventColumns.of([encode_event("t", {}, None, b"x") for _ in ticks], [1] * len(ticks))
    payload = columns.batch(ticks).payload((1 << len(ticks)) - 1)
    return Delivery("p@1", [DeliveredColumns.parse(payload, 0)], ticks)


LOG: list[Delivery | Gap] = [
    delivery(1, 2, 4),
    Gap("p@1", 4, 10, "released early"),
    delivery(11, 12),
    delivery(30, 31, 40),
]


def described(parts: Iterator[Delivery | Gap]) -> list[Any]:
    """Ticks of events, and gaps as pairs."""
    found: list[Any] = []
    for part in parts:
        if isinstance(part, Gap):
            found.append((part.start, part.end))
            continue
        assert list(part.ticks) == [tick for columns in part.columns for tick in columns.ticks()]
        found += part.ticks
    return found


class Broker:
    """Has the log above, and refuses ticks of the void (12, 29)."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []
        self.ends_after: int | None = None

    def read_range(self, subscription: Any, pubend: str, start: int, end: int, *, on_gap: str) -> Any:
        self.read.append((start, end))
        self.span = start, end
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def parts(self, away_timeout: float) -> Iterator[Delivery | Gap]:
        if any(12 < tick < 29 for tick in self.span):
            raise TokenAheadError("no such tick")
        for number, part in enumerate(within(LOG, *self.span)):
            if number == self.ends_after:
                self.ends_after = None
                raise TokenAheadError("no such tick any more")
            yield part


def read(broker: Any, cut: tuple[int, int], whole: tuple[int, int] = (0, 40)) -> list[Any]:
    return described(parts_of(broker, SUBSCRIPTION, "p@1", cut, whole, 1.0))


def test_all_cuts_of_a_range_make_the_whole() -> None:
    for edge in range(1, 40):
        broker = Broker()
        found = read(broker, (0, edge)) + read(broker, (edge, 40))
        ticks = [each for each in found if isinstance(each, int)]
        assert ticks == [1, 2, 4, 11, 12, 30, 31, 40]
        assert len(broker.read) == (4 if 12 < edge < 29 else 2), "what is refused is asked for once more, and whole"
    assert read(Broker(), (0, 7)) == [1, 2, 4, (4, 7)]
    assert read(Broker(), (7, 11)) == [(7, 10), 11]


def test_what_had_come_before_a_refusal_does_not_come_again() -> None:
    broker = Broker()
    broker.ends_after = 2

    assert read(broker, (1, 31)) == [2, 4, (4, 10), 11, 12, 30, 31]


def test_a_whole_range_that_is_refused_is_lost() -> None:
    with pytest.raises(TokenAheadError):
        read(Broker(), (0, 20), (0, 20))


def test_a_range_between_two_events_of_a_part_is_empty() -> None:
    assert described(within(LOG, 32, 39)) == []
    assert described(within(LOG, 2, 3)) == []

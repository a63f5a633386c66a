"""What matching costs: filters against batches of events, and beside it the plain way of asking each filter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from gapless.core.stream.columns import BatchHeaders, EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.selectors import BatchMatcher, Filter
from gapless.selectors.values import Value

BATCH = 256
SECONDS_PER_FIGURE = 0.4


@dataclass(frozen=True)
class Case:
    """Filters and the events they are matched against."""

    name: str
    filters: Sequence[Filter]
    topics: Sequence[str]
    properties: Sequence[dict[str, Value]]

    @cached_property
    def headers(self) -> BatchHeaders:
        """The header fields of the events, as a broker has them; priorities are 3, 4 and 5."""
        extras = (Extras(priority=3), None, Extras(priority=5, type="x"))
        events = [encode_event(topic, {}, extras[at % 3], b"") for at, topic in enumerate(self.topics)]
        batch = EventColumns.of(events, [0] * len(events)).batch(range(1, len(events) + 1))
        return BatchHeaders("p@1", batch)


def run(*, json: bool = False) -> dict[str, float]:
    """Measures every case; prints a table unless the caller wants the figures alone."""
    figures: dict[str, float] = {}
    if not json:
        print(f"{'':34}{'batch':>7}{'found':>9}{'match':>12}{'match_one':>12}{'each filter':>13}")
    for case in cases():
        found = _measure(case)
        figures |= {f"{case.name}_{key}": value for key, value in found.items()}
        if not json:
            row = f"{found['found_per_event']:9.2f}{found['match_us_per_event']:9.2f} us"
            row += f"{found['match_one_us_per_event']:9.2f} us{found['each_filter_us_per_event']:10.1f} us"
            print(f"{case.name:34}{len(case.topics):7}{row}")
    return figures


def cases() -> Iterator[Case]:
    """Fan-out of a few kinds of filter, many distinct ones, dense and sparse, and many topics; then small batches."""
    generator = random.Random(1)  # noqa: S311  # the same events in every run
    one_topic = ["flights"] * BATCH
    events = [_event(generator) for _ in range(BATCH)]
    by_kind = [_filter(f"w = {n % 4}") for n in range(100)]
    few = [_filter(f"w = {n % 4} AND price > {n}") for n in range(100)]
    gated = [_filter(f"symbol = 'S{n % 1000}' AND price > {n / 100}") for n in range(10_000)]
    ranges = [_filter(f"price BETWEEN {n / 100} AND {n / 100 + 0.1}") for n in range(10_000)]
    own_topic = [Filter((f"flights.{n}",), "price > 50") for n in range(10_000)]
    some_topics = [f"flights.{generator.randrange(10_000)}" for _ in range(BATCH)]
    headers = [_filter(f"w = {n % 4} AND JMSPriority > {n % 10}") for n in range(100)]
    yield Case("100_filters_4_kinds", by_kind, one_topic, events)
    yield Case("100_distinct_equality_and_range", few, one_topic, events)
    yield Case("100_distinct_equality_and_header", headers, one_topic, events)
    yield Case("10000_distinct_equality_and_range", gated, one_topic, events)
    yield Case("10000_distinct_narrow_ranges", ranges, one_topic, events)
    yield Case("10000_filters_own_topic_and_range", own_topic, some_topics, events)
    for count in (1, 16):
        yield Case(f"batch_{count}_100_filters_4_kinds", by_kind, one_topic[:count], events[:count])
        yield Case(f"batch_{count}_10000_narrow_ranges", ranges, one_topic[:count], events[:count])


def _event(generator: random.Random) -> dict[str, Value]:
    return {
        "w": generator.randrange(4),
        "price": round(generator.uniform(0, 100), 2),
        "symbol": f"S{generator.randrange(1000)}",
        "final": generator.random() < 0.5,
    }


def _filter(selector: str) -> Filter:
    return Filter(("flights",), selector)


def _measure(case: Case) -> dict[str, float]:
    matcher = BatchMatcher()
    started = time.perf_counter()
    for key, wanted in enumerate(case.filters):
        matcher.add(key, wanted)
    adding = time.perf_counter() - started
    topics, properties, headers = case.topics, case.properties, case.headers
    found = sum(mask.bit_count() * len(keys) for mask, keys in matcher.match(topics, properties, headers))
    events = len(topics)
    rows = [headers[event] for event in range(events)]

    def match_one() -> None:
        for topic, values, fields in zip(topics, properties, rows, strict=True):
            matcher.match_one(topic, values, fields)

    def each_filter() -> None:
        for wanted in case.filters:
            wanted.matches(topics[0], properties[0], rows[0])

    return {
        "add_us_per_filter": 1e6 * adding / len(case.filters),
        "found_per_event": found / events,
        "match_us_per_event": _microseconds(lambda: matcher.match(topics, properties, headers)) / events,
        "match_one_us_per_event": _microseconds(match_one) / events,
        "each_filter_us_per_event": _microseconds(each_filter),
    }


def _microseconds(call: Callable[[], object]) -> float:
    """The quickest of many calls: what the machine does beside only ever adds."""
    quickest, deadline = float("inf"), time.perf_counter() + SECONDS_PER_FIGURE
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        call()
        quickest = min(quickest, time.perf_counter() - started)
    return 1e6 * quickest

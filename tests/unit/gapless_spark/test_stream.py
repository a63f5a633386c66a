"""What the driver of a streaming query does, against a broker in memory: no Spark is needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gapless
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import SubscriptionMismatchError
from gapless_spark.offsets import offset_of
from gapless_spark.options import source_options
from gapless_spark.stream import Stream, WentBackError, ranges, start_of

NETWORK = "0" * 32
LEAST = {"brokers": "embedded:", "subscription": "s", "topics": "t", "pollTimeout": "2s"}


def stream(**given: str) -> Stream:
    return Stream(source_options({**LEAST, **given}, streaming=True))


@pytest.fixture
def opened() -> Iterator[list[Stream]]:
    """Streams that are to be stopped."""
    found: list[Stream] = []
    yield found
    for each in found:
        each.stop()


def publish(one: Stream, numbers: range) -> None:
    """Its broker is its own connection's."""
    with one.connected().session() as session:
        session.publisher("t").send_batch([gapless.Message(b"%d" % n, {"n": n}) for n in numbers])


def between(one: Stream, start: CheckpointToken, end: CheckpointToken) -> list[int]:
    """The numbers of a batch, as its tasks read them."""
    found: list[int] = []
    for each in ranges(offset_of(start), offset_of(end), 0):
        with one.connected().read_range(start, each.pubend, each.start, each.end) as reader:
            found += [int(bytes(event.body)) for event in reader]
    return found


def acknowledged(one: Stream) -> CheckpointToken:
    return one.connected().attach("s", "t", timeout=10)


def test_nothing_is_connected_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[object] = []
    monkeypatch.setattr("gapless_spark.stream.connect", lambda *where: connected.append(where))

    stream().stop()

    assert connected == []


def test_a_query_takes_what_comes_and_acknowledges_what_is_done(opened: list[Stream]) -> None:
    one = stream()
    opened.append(one)
    start = one.initial()
    assert one.initial() == start, "Spark asks twice"
    publish(one, range(5))
    end = one.latest(offset_of(start), capped=False)
    assert between(one, start, end) == list(range(5))
    assert one.head() == end

    one.commit(offset_of(end))
    assert acknowledged(one).ticks == end.ticks


def test_before_4_2_the_position_is_that_of_the_last_batch(opened: list[Stream]) -> None:
    one = stream()
    opened.append(one)
    start = one.initial()
    publish(one, range(3))
    end = one.latest(None, capped=True)
    one.at(offset_of(end))
    publish(one, range(3, 5))

    assert between(one, start, end) == [0, 1, 2]
    assert between(one, end, one.latest(None, capped=True)) == [3, 4]


def test_a_limit_is_kept_unless_all_is_asked_for(opened: list[Stream]) -> None:
    one = stream(maxEventsPerTrigger="4")
    opened.append(one)
    start = one.initial()
    publish(one, range(10))

    assert between(one, start, one.latest(offset_of(start), capped=True)) == [0, 1, 2, 3]
    assert between(one, start, one.latest(offset_of(start), capped=True, max_events=2)) == [0, 1]
    assert between(one, start, one.latest(offset_of(start), capped=False)) == list(range(10))


def test_a_run_that_ends_takes_what_was_there_and_acknowledges_where_it_stands(opened: list[Stream]) -> None:
    one = stream(maxEventsPerTrigger="2")
    opened.append(one)
    start = position = one.initial()
    publish(one, range(3))
    assert between(one, start, one.latest(offset_of(start), capped=False)) == [0, 1, 2]
    one.stop_at_heads()
    publish(one, range(3, 6))
    batches = []
    while (end := one.latest(offset_of(position), capped=True)) != position:
        batches.append(between(one, position, end))
        position = end

    assert [number for batch in batches for number in batch] == [0, 1, 2]
    assert batches[0] == [0, 1]
    assert one.head() == position, "what came since is not what the run is about"
    assert acknowledged(one).ticks == position.ticks, "the commit of the last batch never comes"


def test_acknowledging_may_lag_behind(opened: list[Stream]) -> None:
    one = stream(ackLag="1")
    opened.append(one)
    start = one.initial()
    publish(one, range(1))
    first = one.latest(offset_of(start), capped=True)
    publish(one, range(1))
    second = one.latest(offset_of(first), capped=True)
    one.commit(offset_of(first))
    assert acknowledged(one).ticks == start.ticks

    one.commit(offset_of(second))
    assert acknowledged(one).ticks == first.ticks


def test_a_query_that_goes_on_with_another_selector_is_told(opened: list[Stream]) -> None:
    one = stream()
    opened.append(one)
    position = acknowledged(one)  # attached by the run before
    other = stream(selector="n > 3")
    other._connection = one.connected()

    with pytest.raises(SubscriptionMismatchError):
        other.latest(offset_of(position), capped=True)


def test_an_acknowledgement_that_fails_is_made_good_by_the_next(opened: list[Stream]) -> None:
    one = stream()
    opened.append(one)
    start = one.initial()
    publish(one, range(1))
    end = one.latest(offset_of(start), capped=True)
    connection = one.connected()
    with gapless.sync.connect("embedded:") as unknowing:
        one._connection, one._lease = unknowing, None
        one.commit(offset_of(end))
    one._connection = connection
    one.commit(offset_of(end))

    assert acknowledged(one).ticks == end.ticks


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    def offset(tick: int) -> str:
        return offset_of(CheckpointToken(NETWORK, {"p@1": tick}, 1, 1, b""))

    assert [(each.start, each.end) for each in ranges(offset(3), offset(9), 0)] == [(3, 9)]
    assert ranges(offset(3), offset(3), 4) == []
    with pytest.raises(WentBackError, match=r"^GAPLESS_WENT_BACK pubend=p@1: from 9 to 3"):
        ranges(offset(9), offset(3), 0)


def test_where_a_subscription_begins() -> None:
    token = CheckpointToken(NETWORK, {"p@1": 7}, 1, 1, b"")

    def begins(**given: str) -> object:
        return start_of(source_options({**LEAST, **given}, streaming=True))

    assert begins() is None
    assert begins(startingOffsets="Earliest") == "earliest"
    assert begins(startingOffsets=str(token)) == begins(startingOffsets=offset_of(token)) == token
    with pytest.raises(gapless.InvalidTokenError):
        begins(startingOffsets="newest")

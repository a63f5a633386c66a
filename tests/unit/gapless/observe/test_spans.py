"""The spans of a broker: whose children they are, how long they last, and that none of them disturbs its work."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.traces import Logged, Matched
from gapless.observe.spans import BrokerSpans
from spans import Spans, number_of, parent_of, trace_of

SENDERS = [f"00-{trace:032x}-{9:016x}-01" for trace in (1, 2)]
MS = 1_000_000


class Clock:
    """Monotonic nanoseconds, as the test wants them."""

    now = 50_000 * MS

    def __call__(self) -> int:
        return self.now


class Rig:
    """Spans that are made by a clock of the test's own, which is that of the wall, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spans = Spans()
        self.clock = Clock()
        self.began = self.clock.now
        self.broker = BrokerSpans(self.spans.tracer, "desk", self.clock)
        monkeypatch.setattr(time, "time_ns", self.clock)

    def lasted(self, name: str) -> tuple[int, int]:
        """From when until when a span lasted, in milliseconds since the test began."""
        span = self.spans.one(name)
        assert span.start_time is not None
        assert span.end_time is not None
        return (span.start_time - self.began) // MS, (span.end_time - self.began) // MS


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def batch(*senders: str) -> EventBatch:
    events = [encode_event("t", {"traceparent": sender} if sender else {}, None, b"x") for sender in senders]
    return EventColumns.of(events, [1] * len(events)).batch(range(len(events)))


def logged(sender: str, came: int, *, is_in_volume: bool = True) -> Logged:
    return Logged("p@1", batch(sender), 3, came, is_in_volume)


def test_append_ends_where_the_sync_begins_that_covers_the_batch(rig: Rig) -> None:
    start = rig.clock.now
    rig.broker.on_synced(written_ago=5 * MS, began_ago=4 * MS)  # an earlier one, which does not cover it
    rig.clock.now = start + 10 * MS
    rig.broker.on_synced(written_ago=9 * MS, began_ago=7 * MS)
    rig.clock.now = start + 12 * MS
    rig.broker.on_synced(written_ago=5 * MS, began_ago=4 * MS)  # a later one, which covers it, too
    rig.broker.hear(logged(SENDERS[0], start), start + 11 * MS)
    rig.broker.on_turn()

    assert [rig.lasted("append"), rig.lasted("sync")] == [(0, 3), (3, 10)]
    append = rig.spans.one("append")
    assert {(trace_of(span), parent_of(span)) for span in (append, rig.spans.one("sync"))} == {(1, 9)}
    assert append.name == "append t"
    assert dict(append.attributes or {}) == {
        "messaging.system": "gapless",
        "messaging.destination.name": "t",
        "messaging.batch.message_count": 3,
        "gapless.node": "desk",
        "gapless.pubend": "p@1",
    }


def test_a_batch_in_a_log_of_others_has_no_sync_of_this_node(rig: Rig) -> None:
    start = rig.clock.now
    rig.clock.now += 10 * MS
    rig.broker.on_synced(written_ago=9 * MS, began_ago=7 * MS)
    rig.broker.hear(logged(SENDERS[0], start, is_in_volume=False), start + 8 * MS)
    rig.broker.on_turn()

    assert rig.lasted("append") == (0, 8)
    assert rig.spans.of("sync") == []


def test_match_is_until_it_is_told_and_deliver_until_the_turn_is_over(rig: Rig) -> None:
    turn = rig.clock.now
    rig.clock.now += 2 * MS
    rig.broker.hear(Matched("p@1", batch(*SENDERS, SENDERS[0]), 10, 20), turn)
    rig.clock.now += 3 * MS
    rig.broker.on_turn()

    for what, length in (("match", 2), ("deliver", 3)):
        spans = rig.spans.of(what)
        assert [(trace_of(span), parent_of(span)) for span in spans] == [(1, 9), (2, 9)]
        assert {((span.end_time or 0) - (span.start_time or 0)) // MS for span in spans} == {length}
    assert {(span.attributes or {})["gapless.deliveries"] for span in rig.spans.of("deliver")} == {20}


def test_what_goes_to_nobody_is_not_delivered(rig: Rig) -> None:
    rig.broker.hear(Matched("p@1", batch(SENDERS[0]), 1, 0), rig.clock.now)
    rig.broker.on_turn()

    assert len(rig.spans.of("match")) == 1
    assert rig.spans.of("deliver") == []


@pytest.mark.parametrize("sender", ["", "no context", SENDERS[0].replace("1", "0")])
def test_without_a_sender_they_are_two_traces_of_their_own(rig: Rig, sender: str) -> None:
    rig.broker.on_synced(0, 0)
    rig.broker.hear(logged(sender, rig.clock.now), rig.clock.now)
    rig.broker.hear(Matched("p@1", batch(sender, sender), 2, 2), rig.clock.now)
    rig.broker.on_turn()

    for first, then in (("append", "sync"), ("match", "deliver")):
        assert parent_of(rig.spans.one(first)) == 0
        assert parent_of(rig.spans.one(then)) == number_of(rig.spans.one(first))


def test_a_provider_that_fails_disturbs_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def start_span(self, *_: Any, **__: Any) -> Any:
            raise OSError("no room")

    tracer: Any = Broken()
    broker = BrokerSpans(tracer, "desk", rig.clock)
    for _ in range(3):
        broker.hear(logged("", rig.clock.now), rig.clock.now)
        broker.on_turn()
        broker.on_turn()  # what failed once is not tried again

    assert [record.message for record in caplog.records] == ["spans could not be made"]  # and told once

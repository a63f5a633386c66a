"""What a report says of subscriptions, asked of a broker, and of archives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from archives import NETWORK, K, P, Q, add_batch, add_rows, kafka_table, make_archive, tick
from gapless_report import measuring as module
from gapless_report.measuring import archive_report, broker_report, report

import gapless
from gapless.client.listings import PubendInfo, SubscriptionInfo
from gapless.core.client import Gap
from gapless.core.stream.ticks import SECOND, time_at
from gapless.errors import ConfigurationError, TokenAheadError

NOW = tick(0) // SECOND * SECOND + 100 * SECOND


def at(second: float) -> int:
    """A tick so many seconds behind `NOW`."""
    return NOW + round(second * SECOND)


class Broker:
    """Two subscriptions of two clients; one has events and a gap on one of two pubends, and is at the head of both."""

    def __init__(self) -> None:
        self.network = NETWORK
        self.events = {P: [at(1), at(1.5), at(9)], Q: list[int]()}
        self.asked: list[tuple[str, str, int, int]] = []

    @contextmanager
    def connected(self, url: str, client_id: str = "", wait: float = 0) -> Iterator[Any]:
        yield SimpleNamespace(
            network=self.network,
            subscriptions=self.subscriptions,
            pubends=self.pubends,
            heads=self.heads,
            bound=self.bound,
            read_range=lambda *arguments, **_: self.read(client_id, *arguments),
        )

    def subscriptions(self, timeout: float) -> list[SubscriptionInfo]:
        token = gapless.CheckpointToken(NETWORK, {P: at(0), Q: at(0)})
        return [
            SubscriptionInfo(client_id, name, ("#",), "", True, token, 3, 0.0, True)
            for client_id, name in (("", "sub"), ("desk", "late"))
        ]

    def pubends(self, timeout: float) -> list[PubendInfo]:
        return [PubendInfo(pubend, ("#",), time_at(at(-50)), 0, at(9), at(9), 0, 0, 1) for pubend in (P, Q)]

    def heads(self, name: str | None = None, after: Any = None, timeout: float = 0) -> gapless.CheckpointToken:
        return gapless.CheckpointToken(NETWORK, {P: at(10), Q: at(10 if name is None else 0)})

    def bound(self, name: str, start: Any, max_events: int, timeout: float) -> gapless.CheckpointToken:
        return gapless.CheckpointToken(NETWORK, {P: at(2) if max_events < 3 else at(10), Q: at(0)})

    @contextmanager
    def read(self, client_id: str, name: str, pubend: str, start: int, end: int) -> Iterator[Any]:
        self.asked.append((client_id, name, start, end))
        ticks = [each for each in self.events[pubend] if start < each <= end]
        columns = SimpleNamespace(ticks=lambda: ticks)
        yield SimpleNamespace(parts=lambda: [SimpleNamespace(columns=[columns]), Gap(pubend, at(2), at(4))])


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(module, "connected", broker.connected)
    return broker


def test_each_subscription_has_figures_on_each_pubend(broker: Broker) -> None:
    found = broker_report("gapless://nowhere")
    busy, quiet = found[:2]

    assert [(each.client_id, each.subscription, each.pubend) for each in found] == [
        ("", "sub", P),
        ("", "sub", Q),
        ("desk", "late", P),
        ("desk", "late", Q),
    ]
    assert (busy.events, busy.lag_events, busy.peak_per_second) == (3, 3, 2)
    assert busy.lag_seconds == pytest.approx(9)
    assert (busy.gaps, busy.gap_seconds) == (1, 2.0)
    assert busy.silence_share == pytest.approx(1 - 2 / 8)
    assert busy.complete
    assert (quiet.events, quiet.lag_events, quiet.lag_seconds, quiet.silence_share) == (0, 0, 0.0, 1.0)
    assert [asked[:2] for asked in broker.asked] == [("", "sub"), ("desk", "late")], "nothing is read for nothing"


def test_one_that_is_far_behind_is_counted_in_part(broker: Broker) -> None:
    [first, *_] = broker_report("gapless://nowhere", ["sub"], max_events=2)

    assert (first.events, first.complete, first.until) == (2, False, time_at(at(2)))
    assert first.lag_seconds == pytest.approx(9)


def test_one_that_there_is_not_is_an_error(broker: Broker) -> None:
    with pytest.raises(ConfigurationError, match="there is no durable subscription 'nobody' at gapless://nowhere"):
        broker_report("gapless://nowhere", ["sub", "nobody"])


def test_one_that_cannot_be_looked_at_does_not_spoil_the_report_of_the_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = broker.heads

    def refused(name: str | None = None, after: Any = None, timeout: float = 0) -> gapless.CheckpointToken:
        if name == "sub":
            raise TokenAheadError("'sub' stands ahead")
        return heads(name, after, timeout)

    monkeypatch.setattr(broker, "heads", refused)
    found = broker_report("gapless://nowhere")

    assert [(each.subscription, each.pubend) for each in found] == [("sub", ""), ("late", P), ("late", Q)]
    assert [bool(each.error) for each in found] == [True, False, False]
    assert found[0].fields()["error"] == "'sub' stands ahead"
    assert found[0].events == 0


def test_an_archive_has_figures_without_a_broker(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    add_batch(folder, {P: 10, Q: 5}, {P: range(1, 11), Q: range(1, 6)})
    add_batch(folder, {P: 30}, {P: range(21, 31)}, {P: [(10, 14)]})
    one, other = archive_report(tmp_path)

    assert (one.source, one.pubend, one.events, one.gaps, one.lag_seconds) == ("archive", P, 20, 1, None)
    assert (other.pubend, other.events, other.gaps) == (Q, 5, 0)
    assert one.lost == ((time_at(tick(10)), time_at(tick(14))),)


def test_the_figures_of_kafka_are_of_the_times_of_its_records(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_archive(tmp_path, start={K: 0})
    times = {n: time_at(at(100 * n)) for n in (1, 2, 3)}
    add_rows(folder, {K: 3}, {K: 0}, kafka_table(K, times))
    [found] = archive_report(tmp_path)

    assert (found.events, found.since, found.until) == (3, time_at(at(100)), time_at(at(301)))
    assert found.lag_seconds is None

    broker.heads = lambda *_, **__: gapless.CheckpointToken(NETWORK, {K: 9})  # type: ignore[method-assign]
    assert [each.lag_seconds for each in archive_report(tmp_path, "gapless://nowhere")] == [None], "records have no age"
    broker.heads = lambda *_, **__: gapless.CheckpointToken(NETWORK, {K: 3})  # type: ignore[method-assign]
    assert [each.lag_seconds for each in archive_report(tmp_path, "gapless://nowhere")] == [0.0]


def test_with_a_broker_it_is_known_how_far_an_archive_is_behind(tmp_path: Path, broker: Broker) -> None:
    folder = make_archive(tmp_path, start={P: at(0)})
    found = report("gapless://nowhere", [tmp_path], subscriptions=["sub"])
    assert [each.source for each in found] == ["broker", "broker"], "nothing is archived yet"

    broker.heads = lambda *_, **__: gapless.CheckpointToken(NETWORK, {P: tick(10) + 7 * SECOND})  # type: ignore[method-assign]
    add_batch(folder, {P: 10}, {P: range(1, 11)})
    assert [each.lag_seconds for each in archive_report(tmp_path, "gapless://nowhere")] == [pytest.approx(7)]
    broker.network = "other"
    assert [each.lag_seconds for each in archive_report(tmp_path, "gapless://nowhere")] == [None]


def test_of_a_subscription_that_was_removed_no_lag_is_known(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_batch(make_archive(tmp_path), {P: 10}, {P: range(1, 11)})
    monkeypatch.setattr(broker, "subscriptions", lambda **_: [])

    [found] = archive_report(tmp_path, "gapless://nowhere")
    assert found.lag_seconds is None
    assert found.until is not None
    assert found.until - time_at(tick(10)) == timedelta()

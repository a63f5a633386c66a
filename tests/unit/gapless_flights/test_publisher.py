"""The publisher goes on behind what its name has logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

import gapless
from gapless_flights.data import made_up_flights, properties_of, topic_of, write_lines
from gapless_flights.publisher import NAME, PublisherLife
from gapless_flights.reporting import Stop

FLIGHTS = made_up_flights(200, seed=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The flights, in a file."""
    path = tmp_path / "flights.csv"
    write_lines(path, FLIGHTS)
    return path


class Countdown:
    """Says stop after it was asked so often."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __bool__(self) -> bool:
        self.left -= 1
        return self.left < 0


async def publish(url: str, path: Path, stop: object, rate: float = 0) -> None:
    await PublisherLife(path, rate, cast("Stop", stop)).run(url)


async def logged(url: str) -> list[tuple[str, bytes, Any]]:
    """Everything that was published."""
    async with gapless.connect(url) as connection, connection.session() as session:
        done = (await session.publisher(name=NAME).recover()).sequence
        events: list[tuple[str, bytes, Any]] = []
        async with session.subscribe("#", start="earliest") as subscription:
            while len(events) < done:
                event = await anext(subscription)
                events.append((event.topic, event.body, event.properties))
        return events


async def test_every_flight_is_published_once_whoever_stops_when(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"embedded:{tmp_path / 'volume'}"

    await publish(url, path, Countdown(50))
    await publish(url, path, Countdown(70), rate=100_000)
    await publish(url, path, Countdown(1000))
    await publish(url, path, Countdown(1000))

    assert await logged(url) == [(topic_of(line), line.encode(), properties_of(line)) for line in FLIGHTS]
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["published"] for report in reports if "ends" in report] == [50, 120, 200, 200]
    assert all(len(report["ends"]) == 1 for report in reports if "ends" in report)

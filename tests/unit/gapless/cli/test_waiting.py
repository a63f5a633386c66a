"""What a command says that waits: of its own topics, once, and not before it has waited."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from typing import Any, cast

import pytest

from gapless import AlarmInfo, AuthorizationError, BrokerStatus, Connection, PubendInfo
from gapless.cli import waiting
from gapless.cli.waiting import reasons, telling_why

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def alarm(about: str, text: str, *, code: str = "log_stands_still", over: bool = False) -> AlarmInfo:
    return AlarmInfo(code, about, text, 1, NOON, NOON, over, "", "", lasts=True)


class Broker:
    """Tells its status as often as it is asked."""

    def __init__(self, *alarms: AlarmInfo) -> None:
        self.alarms = alarms
        self.asked = 0

    async def status(self) -> BrokerStatus:
        self.asked += 1
        return BrokerStatus((), self.alarms)

    async def pubends(self) -> list[PubendInfo]:
        return [PubendInfo("kafka-name.0@id", ("shop.orders",), None, 0, 0, 0, 0, 0, 0, timed=False)]


def connection(broker: Any) -> Connection:
    return cast("Connection", broker)


async def test_reasons_are_those_of_the_topics_that_are_waited_for() -> None:
    broker = Broker(
        alarm("shop.orders", "there is no topic"),
        alarm("kafka-name.0@id", "there is no leader"),
        alarm("shop.carts", "that is another one"),
        alarm("shop.orders", "that is over", over=True),
        alarm("", "that is something else", code="disk_low"),
    )

    assert await reasons(connection(broker), ["shop.*"]) == [
        "there is no topic",
        "there is no leader",
        "that is another one",
    ]
    assert await reasons(connection(broker), ["x", "shop.orders"]) == ["there is no topic", "there is no leader"]
    assert await reasons(connection(broker), ["shop"]) == []


@pytest.mark.parametrize("at", [0, None])
async def test_each_reason_is_said_once_and_only_to_who_waits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, at: int | None
) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0)
    broker = Broker(alarm("t", "there is no topic\x1b[2J"))

    async with telling_why(connection(broker), ["t"], lambda: at):
        for _ in range(50):
            await asyncio.sleep(0)

    said = capsys.readouterr().err
    assert said == ("" if at is None else "gapless: waiting: there is no topic\\u001b[2J\n")


async def test_who_moves_is_told_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0)
    broker, moved = Broker(alarm("t", "there is no topic")), iter(range(1000))

    async with telling_why(connection(broker), ["t"], lambda: next(moved)):
        for _ in range(50):
            await asyncio.sleep(0)

    assert capsys.readouterr().err == ""
    assert not broker.asked


async def test_who_may_not_ask_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0)

    class Refusing(Broker):
        async def status(self) -> BrokerStatus:
            await super().status()
            raise AuthorizationError("not you")

    broker = Refusing()
    async with telling_why(connection(broker), ["t"], lambda: 0):
        for _ in range(50):
            await asyncio.sleep(0)

    assert broker.asked == 1

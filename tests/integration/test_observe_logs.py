"""The log of a real broker as JSON: every line is an object that names the node, and what it concerns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gapless
from integration.broker_process import BrokerProcess, run_broker
from integration.raw_client import RawClient

JSON: dict[str, Any] = {"node": {"name": "desk", "log_format": "json"}}


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_what_happens_is_told_with_what_it_concerns(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path, **JSON) as broker:
        async with gapless.connect(broker.url, client_id="shop") as connection, connection.session() as session:
            async with session.subscribe("t", name="all"):
                pubend = (await session.publisher("t").send(b"x")).pubend
        async with RawClient(broker.url.removeprefix("gapless://")) as stranger:
            await stranger.send(b"\xff" * 100)
            await stranger.hear_all()
        assert await broker.stop() == 0

    told = lines(broker.log)
    assert {line["node"] for line in told} == {"desk"}
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in told)
    of = {line["message"].split(",")[0]: line for line in told}
    [connected] = [line for text, line in of.items() if text.startswith("client 'shop' has connected")]
    assert (connected["client_id"], connected["principal"]) == ("shop", "anonymous")
    [created] = [line for text, line in of.items() if "was created" in text and "subscription" in line]
    assert (created["subscription"], created["client_id"]) == ("all", "shop")
    assert any(line.get("pubend") == pubend for line in told)
    [refused] = [line for line in told if line.get("alarm") == "client_refused"]
    assert (refused["level"], refused["about"]) == ("warning", "127.0.0.1")


@pytest.mark.parametrize(
    ("config", "options", "status", "text"),
    [
        (
            {"node": {"name": "desk", "log_format": "text"}, "storage": {"path": ""}},
            ("--log-format", "json"),
            2,
            "a path",
        ),
        ({"node": {"name": "desk", "log_format": "json"}, "storage": {"path": "x"}}, (), 1, "there is no volume"),
    ],
    ids=["command line", "configuration"],
)
def test_the_error_that_ends_it_is_a_line(
    tmp_path: Path, config: dict[str, Any], options: tuple[str, ...], status: int, text: str
) -> None:
    ended = run_broker(tmp_path, config, *options)

    assert (ended.status, ended.out) == (status, "")
    [line] = lines(ended.error)
    assert text in line["message"]
    assert (line["level"], line["node"]) == ("critical", "desk")

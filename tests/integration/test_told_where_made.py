"""What is told where something is made: topics that nobody takes, and what a broker's log has of its life."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.jms
from integration.broker_process import bounded
from integration.nodes_in_process import running_node

ORDERS: dict[str, Any] = {"phb": {"pubends": [{"name": "orders", "topics": ["orders.#", "bills"]}]}}


async def test_a_topic_that_no_pubend_takes_is_warned_of_where_it_is_subscribed_to(tmp_path: Path) -> None:
    """Once, where the subscription is created; what a pubend takes needs no word."""
    async with running_node(tmp_path / "v", **ORDERS) as node:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            with pytest.warns(UserWarning, match="takes events on 'order.new', 'b': until there is one, nothing comes"):
                former = await bounded(session.subscribe("order.new", "orders.*", "b", name="s"))
            for topics in (["orders.new"], ["#"], ["*"], ["bills"]):
                await bounded(session.subscribe(*topics))
            await former.close()
            await bounded(session.subscribe("order.new", "orders.*", "b", name="s"))


async def test_a_pattern_of_another_system_is_warned_of(tmp_path: Path) -> None:
    async with running_node(tmp_path / "v") as node:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            for pattern, meant in {
                "orders.>": "orders.#",
                "orders/new": "orders.new",
                "orders/+/#": "orders.*.#",
                "a.+.b": "a.*.b",
            }.items():
                if "#" in pattern:
                    with pytest.raises(gapless.InvalidTopicError):
                        await bounded(session.subscribe(pattern))
                    continue
                with pytest.warns(UserWarning, match=rf"Did you mean '{meant}'\?".replace("*", r"\*")):
                    await bounded(session.subscribe(pattern))


def test_the_blocking_and_the_jms_way_warn_too(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'v'}"
    with gapless.sync.connect(url) as connection, connection.session() as session:
        with pytest.warns(UserWarning, match="Did you mean 'orders.#'"):
            session.subscribe("orders.>").close()
    with gapless.jms.ConnectionFactory(url).create_context() as context:
        with pytest.warns(UserWarning, match="Did you mean 'orders.new'"):
            context.create_consumer(context.create_topic("orders/new")).close()


@pytest.mark.parametrize("command", [["subscribe", "s", "--topic", "orders.>", "--count", "1"], ["tail", "orders.>"]])
def test_the_command_line_prints_it_as_a_sentence(tmp_path: Path, command: list[str]) -> None:
    url = f"embedded:{tmp_path / 'v'}"
    publish = [sys.executable, "-m", "gapless", "publish", "orders.>", "-m", "x", "--url", url]
    subprocess.run(publish, check=True, timeout=60, capture_output=True)
    more = ["--start", "earliest"] if command[0] == "subscribe" else ["--last", "1", "--no-follow"]
    done = subprocess.run(
        [sys.executable, "-m", "gapless", *command, *more, "--url", url, "--wait", "60"],
        check=False,
        timeout=100,
        capture_output=True,
        text=True,
        env=os.environ,
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("gapless: 'orders.>' is a topic of exactly that name here")
    assert "UserWarning" not in done.stderr
    assert done.stdout.endswith("  x\n")


async def test_the_log_has_who_connected_and_what_was_made_and_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gapless.node")

    def said(what: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if what in record.getMessage()]

    async with running_node(tmp_path / "v", **ORDERS) as node:
        async with gapless.connect(node.url, client_id="desk") as connection, connection.session() as session:
            async with session.subscribe("orders.new", name="late", selector="a = 1"), session.subscribe("bills"):
                pass
            await bounded(connection.unsubscribe("late"))
    both: dict[str, Any] = {"phb": {"pubends": [{"name": "others"}]}}
    async with running_node(tmp_path / "v", **both):
        pass

    [connected] = said("has connected")
    assert connected.startswith("client 'desk' has connected from 127.0.0.1:")
    created, removed = said("subscription 'late' of client 'desk'")
    assert created.endswith("was created, for 'orders.new' with selector 'a = 1'")
    assert removed.endswith("was removed")
    assert len(said("subscription ")) == 2, "those without a name come and go without a line"
    assert [line.split("@")[0] for line in said("was created, for") if "pubend" in line] == [
        "pubend orders",
        "pubend others",
    ]
    [stopped] = said("takes no new events any more")
    assert stopped.startswith("pubend orders@")


def test_the_level_of_the_log_is_configured(tmp_path: Path) -> None:
    """A broker that warns of nothing writes nothing."""
    file = tmp_path / "gapless.toml"
    logs = {}
    for level in ("info", "warning", "loud"):
        volume = tmp_path / level
        file.write_text(
            f"[node]\nlog_level = '{level}'\n[storage]\npath = '{volume}'\n[[listen]]\naddress = '127.0.0.1:0'\n"
        )
        command = [sys.executable, "-m", "gapless", "broker", "--config", str(file), "--create"]
        command.append("--until-stdin-closes")
        with subprocess.Popen(command, text=True, stdin=-1, stdout=-1, stderr=-1) as broker:
            assert broker.stdout is not None
            broker.stdout.readline()
            _, said = broker.communicate(timeout=60)
        logs[level] = broker.returncode, said

    assert "serves on" in logs["info"][1]
    assert "was created, for" in logs["info"][1]
    assert logs["warning"] == (0, "")
    assert logs["loud"][0] == 2
    assert "node.log_level" in logs["loud"][1]

"""What to look at when something happens (docs/howto/observe.md): each row of that table, on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import gapless
from architecture.project import ROOT
from architecture.queries import alerts
from gapless import jms
from gapless.core.gauges import Gauge
from gapless.core.wire.framing import encode_frame
from gapless.node.node import Node
from gapless_storage.rocksdb import RocksdbVolume
from integration.broker_process import bounded, until
from integration.networks_in_process import network_of
from integration.nodes_in_process import running_node
from integration.raw_client import RawClient

pytestmark = pytest.mark.timeout(60)

PAGE = ROOT / "docs" / "howto" / "observe.md"
EVENTS = 30
Figures: TypeAlias = "dict[str, list[Gauge]]"


def rows() -> dict[str, tuple[list[str], str]]:
    """What happens, with the figures to look at and the alert."""
    table = PAGE.read_text("utf-8").partition("## 7.")[2].partition("## When")[0]
    found = re.findall(r"^\| ([^|]*?) \| (`[^|]*?) \| ?([^|]*?) ?\|$", table, re.MULTILINE)
    return {what: (re.findall(r"`(\w+)`", figures), alert) for what, figures, alert in found}


def figures_of(node: Node) -> Figures:
    """All that a node tells now, by name."""
    found: Figures = {}
    for gauge in node.gauges():
        found.setdefault(re.sub(r"_(count|sum|bucket)$", "", gauge.name), []).append(gauge)
    return found


def told(broker: Node, name: str, /, **labels: str) -> float:
    """The sum of the figures of a name with these labels."""
    gauges = [gauge for gauge in broker.gauges() if gauge.name == name]
    return sum(gauge.value for gauge in gauges if labels.items() <= dict(gauge.labels).items())


@contextlib.asynccontextmanager
async def session_of(node: Node, client_id: str = "desk") -> AsyncIterator[gapless.Session]:
    async with gapless.connect(node.url, client_id=client_id) as connection, connection.session() as session:
        yield session


async def publish(session: gapless.Session, count: int = EVENTS, size: int = 10) -> list[gapless.Receipt]:
    return list(await bounded(session.publisher("t").send_batch([gapless.Message(bytes(size))] * count)))


async def subscribe(session: gapless.Session, name: str) -> None:
    """There is a durable subscription, and nobody consumes it."""
    async with session.subscribe("t", name=name):
        pass


async def a_full_disk(path: Path) -> Figures:
    async with running_node(path / "volume", node={"min_free_bytes": 1 << 50}) as node, session_of(node) as session:
        waiting = asyncio.create_task(session.publisher("t").send(b"x"))
        waiting.add_done_callback(asyncio.Task.exception)
        await until(lambda: told(node, "gapless_volume_space_low") == 1, "a low disk")
        return figures_of(node)


async def a_slow_disk(path: Path) -> Figures:
    fast = RocksdbVolume.sync

    def slow(self: RocksdbVolume) -> None:
        time.sleep(0.3)
        fast(self)

    async with running_node(path / "volume") as node, session_of(node) as session:
        try:
            RocksdbVolume.sync = slow  # type: ignore[method-assign]
            sending = asyncio.create_task(publish(session))
            await until(lambda: told(node, "gapless_volume_sync_running_seconds") > 0.1, "a sync that lasts")
            found = figures_of(node)
            await sending
        finally:
            RocksdbVolume.sync = fast  # type: ignore[method-assign]
        longer = told(node, "gapless_volume_sync_seconds_count") - told(
            node, "gapless_volume_sync_seconds_bucket", le="0.25"
        )
        assert longer > 0
        return found


async def an_absent_subscriber(_: Path) -> Figures:
    async with running_node() as node, session_of(node) as session:
        await subscribe(session, "late")
        await publish(session)
        await until(lambda: told(node, "gapless_subscription_behind_ticks", subscription="late") > 0, "who is behind")
        assert told(node, "gapless_pubend_unreleased_bytes") > EVENTS * 10
        assert told(node, "gapless_pubend_member_ticks") > 0
        return figures_of(node)


async def a_slow_consumer(_: Path) -> Figures:
    async with running_node() as node, session_of(node) as session:
        async with session.subscribe("t", name="slow", prefetch=1):
            await publish(session)
            await until(lambda: told(node, "gapless_shb_readers") == 1, "a reader")
            assert told(node, "gapless_shb_demoted_total") == 1
            return figures_of(node)


async def gaps(_: Path) -> Figures:
    phb = {"release_seconds": 0.05, "pubends": [{"name": "p", "max_retain_bytes": 2_000}]}
    async with running_node(phb=phb, shb={"catchup_bytes": 0}) as node, session_of(node) as session:
        await subscribe(session, "away")
        for _batch in range(20):
            await publish(session, 10, 200)
        await until(lambda: told(node, "gapless_pubend_lost_ticks") > 0, "what is given up")
        async with session.subscribe("t", name="away", on_gap="deliver") as subscription:
            async for unit in subscription:
                if isinstance(unit, gapless.Gap):
                    break
        assert told(node, "gapless_shb_gaps_total", reason="released early") == 1
        return figures_of(node)


async def what_comes_again(_: Path) -> Figures:
    async with running_node() as node:
        factory = jms.ConnectionFactory(node.url, client_id="teller")

        def work() -> None:
            with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:
                consumer = context.create_durable_consumer("orders", "audit")
                context.create_producer().send("orders", "one")
                assert consumer.receive(20_000) is not None
                context.recover()
                assert consumer.receive(20_000) is not None

        await asyncio.to_thread(work)
        assert told(node, "gapless_shb_redelivered_total") == 1
        return figures_of(node)


async def a_node_that_is_away(path: Path) -> Figures:
    async with network_of(path, "phb", "shb") as network:
        await network.start_all()
        await network.until_linked("phb", "shb")
        phb = network.nodes["phb"]
        assert told(phb, "gapless_broker_link_up", node="shb") == 1
        await network.stop("shb")
        await until(lambda: told(phb, "gapless_broker_link_up", node="shb") == 0, "a link that is gone")
        return figures_of(phb)


async def a_stranger(_: Path) -> Figures:
    async with running_node() as node:
        async with RawClient(node.url.rpartition("/")[2]) as client:
            await client.send(encode_frame(b"junk"))
            await client.hear_all()
        assert told(node, "gapless_node_refused_total") == 1
        return figures_of(node)


async def a_busy_broker(_: Path) -> Figures:
    async with running_node() as node, session_of(node) as session:
        before = [told(node, name) for name in ("gapless_node_turn_seconds_sum", "process_cpu_seconds_total")]
        for _batch in range(50):
            await publish(session, 500)
        after = [told(node, name) for name in ("gapless_node_turn_seconds_sum", "process_cpu_seconds_total")]
        assert before[0] < after[0]
        assert before[1] < after[1]
        return figures_of(node)


async def what_is_published(_: Path) -> Figures:
    async with running_node() as node, session_of(node) as session:
        [pubend] = {receipt.pubend for receipt in await publish(session)}
        assert told(node, "gapless_pubend_published_events_total", pubend=pubend) == EVENTS
        return figures_of(node)


SITUATIONS: dict[str, Callable[[Path], Awaitable[Figures]]] = {
    "publishers wait, and nothing is refused": a_full_disk,
    "receipts take long": a_slow_disk,
    "an application gets its events late": an_absent_subscriber,
    "a consumer is connected and takes too little": a_slow_consumer,
    "a log grows": an_absent_subscriber,
    "applications are told of gaps": gaps,
    "events come a second time": what_comes_again,
    "another node seems to be away": a_node_that_is_away,
    "clients cannot connect": a_stranger,
    "everything is slow": a_busy_broker,
    "nothing seems to be published": what_is_published,
}


def test_every_row_has_its_situation_and_its_alert() -> None:
    assert list(rows()) == list(SITUATIONS)
    assert {alert for _, alert in rows().values() if alert} <= {each["alert"] for each in alerts()}


@pytest.mark.parametrize("what", SITUATIONS)
async def test_what_one_looks_at_shows_it(what: str, tmp_path: Path) -> None:
    found: Any = await SITUATIONS[what](tmp_path)

    assert [name for name in rows()[what][0] if name not in found] == []

"""A real Kafka through the front door: nodes that are gateways to it, and what a subscription of theirs is given."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import gapless
from gapless.core.stream.ticks import Tick
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless_log.kafka.lineage import tick_at
from gapless_testing.kafka import KafkaCluster
from integration.broker_process import until

Items: TypeAlias = "list[tuple[Tick, bytes] | tuple[Tick, Tick, str]]"
"""Events as tick and body, and gaps as start, end and reason."""


@contextlib.asynccontextmanager
async def gateway(
    kafka: KafkaCluster,
    *topics: object,
    own: str = "",
    sections: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> AsyncIterator[Node]:
    """A node in memory, which it loses at its end. If it has a pubend of its own, of that name, nobody uses its topic.

    `options`: of the section for Kafka; `sections`: others of its configuration.
    """
    section = {"servers": kafka.bootstrap.split(","), "topics": list(topics), **options}
    pubends = [{"name": own, "topics": ["own"]}] if own else []
    node = await Node.start(
        make_config(
            {
                "node": {"network": "shop"},
                "storage": {"plugin": "memory", "path": ""},
                "listen": [{"address": "127.0.0.1:0"}],
                **sections,
                "phb": {"pubends": pubends, "kafka": [section]},
            }
        )
    )
    try:
        yield node
    finally:
        await node.stop()


@contextlib.asynccontextmanager
async def session_at(node: Node) -> AsyncIterator[tuple[gapless.Connection, gapless.Session]]:
    """A connection to a node, and a session of it."""
    async with gapless.connect(node.url) as connection, connection.session() as session:
        yield connection, session


async def pubend_of(connection: gapless.Connection, name: str, *others: str) -> str:
    """The pubend that a topic of Kafka's is, once it is found. `others`: those that it is not."""
    while True:
        for pubend in await connection.pubends():
            if pubend.pubend.startswith(name) and pubend.pubend not in others:
                return pubend.pubend


async def until_lost(connection: gapless.Connection, pubend: str, upto: Tick) -> None:
    """Waits until the node knows that everything up to a tick was removed: before, it may still have it in memory."""
    while not any(each.pubend == pubend and each.lost >= upto for each in await connection.pubends()):
        pass


def consume(session: gapless.Session, topic: str, name: str, **options: Any) -> Any:
    """A subscription that is also given silence and gaps."""
    return session.subscribe(topic, name=name, silence=True, on_gap="deliver", **options)


async def given(subscription: Any, pubend: str, upto: Tick) -> Items:
    """All events and gaps of a pubend that a subscription is given until it stands at a tick: there are no others."""
    return (await given_of(subscription, {pubend: upto}))[pubend]


async def given_of(subscription: Any, upto: Mapping[str, Tick]) -> dict[str, Items]:
    """The same of several pubends."""
    items: dict[str, Items] = {pubend: [] for pubend in upto}
    while any(subscription.token.ticks.get(pubend, -1) < tick for pubend, tick in upto.items()):
        item = await anext(subscription)
        if isinstance(item, gapless.Gap):
            items[item.pubend].append((item.start, item.end, item.reason))
        elif not isinstance(item, gapless.Silence):
            items[item.pubend].append((item.tick, item.body))
    assert {pubend: subscription.token.ticks[pubend] for pubend in upto} == upto, items
    return items


def numbered(first: int, *bodies: bytes, epoch: int = 0) -> Items:
    """Events that are records of a leader epoch, the first one at this offset."""
    return [(tick_at(epoch, first + number + 1), body) for number, body in enumerate(bodies)]


def alarms(node: Node, code: str) -> list[str]:
    """What of a kind a node's operator was told, and is not over."""
    return [alarm.text for alarm in node.alarms() if alarm.code == code and not alarm.over]


async def until_alarmed(node: Node, code: str) -> list[str]:
    """Waits for such an alarm; returns what it says."""
    await until(lambda: alarms(node, code), f"the alarm {code}")
    return alarms(node, code)

"""What a broker says that was started on a disk: asked by a real client, as any client would ask."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gapless
from gapless import plugins
from gapless.errors import GaplessError
from gapless_storage._rocksdb import opening, watchdog
from gapless_storage._rocksdb.logformat import intact_records
from integration.broker_process import CLI, BrokerProcess
from integration.nodes_in_process import running_node
from power.workload import SECTIONS, STORAGE

PATIENCE = 20.0
"""Seconds for all that is asked of a broker that serves."""


@dataclass(slots=True)
class Found:
    """What was found."""

    refusal: str = ""
    """Why the volume was not opened; "" if it was."""
    trouble: str = ""
    """What went wrong with a broker that serves, or did not come to serve for another reason."""
    lost: int = 0
    sequences: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """The position of each durable subscription."""
    events: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    """What each of them gets: tick, body, and the name of its publisher's topic."""
    marker: int = 0
    """The tick of an event that was published now."""


async def examine(url: str, publishers: list[str], found: Found) -> None:
    """Asks the broker at an address for all that it may have promised."""
    async with gapless.connect(url) as connection, connection.session() as session:
        [pubend] = await connection.pubends()
        found.lost = pubend.lost
        listed = await connection.subscriptions()
        found.acknowledged = {info.name: max(info.acknowledged.ticks.values(), default=0) for info in listed}
        for name in publishers:
            found.sequences[name] = (await session.publisher(f"t.{name}", name=name).recover()).sequence
        marker = session.publisher("t.marker")
        messages = [gapless.Message(b"", {"parity": parity}) for parity in ("even", "odd")]
        receipts = await marker.send_batch(messages)
        found.marker = receipts[0].tick
        for info in listed:
            found.events[info.name] = await _events_of(session, info, found.marker)


async def _events_of(
    session: gapless.Session, info: gapless.SubscriptionInfo, marker: int
) -> list[tuple[int, str, str]]:
    """What a subscription gets before the marker. Raises GapError when it is not all there."""
    events: list[tuple[int, str, str]] = []
    topics, selector = info.topics, info.selector
    async with session.subscribe(*topics, name=info.name, selector=selector, in_use="takeover") as subscription:
        async for event in subscription:
            if event.tick >= marker:
                break
            events.append((event.tick, event.body.hex(), event.topic))
    return events


# ------------------------------------------------------------------------------------------- who serves it


async def examine_in_process(volume: Path, publishers: list[str]) -> Found:
    """Starts a node in this process on a volume, and asks it."""
    found = Found()
    with suppress(OSError):  # it is not empty, or not there
        os.rmdir(volume)  # noqa: PTH106 - the power took all names of it: an operator would look, and allow a new one
    sections: dict[str, Any] = {**SECTIONS, "storage": {"path": str(volume), **STORAGE}}
    try:
        async with running_node(volume, **sections) as node:
            [address] = node.addresses
            await asyncio.wait_for(examine(f"gapless://{address}", publishers, found), PATIENCE)
    except gapless.GapError as error:
        found.trouble = f"a gap: {error}"
    except gapless.StorageError as error:
        found.refusal = str(error)
    except (GaplessError, TimeoutError, OSError, asyncio.TimeoutError) as error:
        found.trouble = f"{type(error).__name__}: {error}"
    return found


async def examine_process(volume: Path, scratch: Path, publishers: list[str]) -> Found:
    """The same with a broker process of its own."""
    found = Found()
    broker = BrokerProcess(scratch, program=CLI, **SECTIONS)
    broker.sections["storage"] = {"path": str(volume), **STORAGE}
    try:
        async with broker:
            await asyncio.wait_for(examine(broker.url, publishers, found), PATIENCE)
            await broker.stop()
    except AssertionError as error:
        found.refusal = str(error)
    except (GaplessError, TimeoutError, asyncio.TimeoutError) as error:
        found.trouble = f"{type(error).__name__}: {error}"
    return found


def be_quick() -> None:
    """Has this process do without what takes a broker most of the time that it needs to start.

    It inspects databases itself, where a broker starts a child for it, and looks for plugins once. RocksDB may hang of
    a MANIFEST that ends in garbage, so one that is not whole is inspected by a child here, too. What hangs otherwise
    hangs this process: whoever expects that watches it.
    """
    vars(opening)["inspect_within"] = _inspect
    vars(plugins)["entry_points"] = cache(entry_points)


def _inspect(directory: Path, seconds: float) -> watchdog.Flushed:
    if all(map(_is_whole, directory.glob("MANIFEST-*"))):
        return watchdog._ask_ourselves(directory)
    return watchdog.inspect_within(directory, seconds)


def _is_whole(log: Path) -> bool:
    *_, end = 0, *(end for _, end in intact_records(log, 0))
    return end == log.stat().st_size

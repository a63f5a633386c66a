"""An SHB is retired and comes back: what was given up meanwhile is a gap at a real client (T10).

There is one router yet, for one node. So the SHB is away because its node hosts the PHB alone for a while, and
the other SHB, without which nobody would be counted and nothing released, is one that a router in this test
speaks for: it has everything at once.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pluggy
import pytest
from typer.testing import CliRunner

import gapless
from gapless import hookspecs, plugins
from gapless.cli.app import app
from gapless.core.network.facts import Enrol, Know, Opened, Progress
from gapless.core.network.seam import Effects
from gapless.plugins import hookimpl
from gapless_routing.local import LocalRouter
from integration.nodes_in_process import running_node
from integration.test_release import lost, publish, until_lost

SETTINGS: dict[str, Any] = {
    "phb": {"pubends": [{"name": "default", "min_retain_seconds": 0.0, "min_retain_bytes": 0}], "release_seconds": 0.1},
    "routing": {"plugin": "with_another"},
}
ANOTHER = "another@disk"


class WithAnother(LocalRouter):
    """The local router, and an SHB elsewhere that is done with everything as soon as it is said."""

    def pubend(self, now: int, opened: Opened) -> Effects:
        asks = [] if ANOTHER in opened.members else [Enrol(opened.meta.pubend, ANOTHER)]
        return [*super().pubend(now, opened), *asks]

    def know(self, now: int, said: Know) -> Effects:
        knowledge = said.knowledge
        done = Progress(ANOTHER, knowledge.pubend, knowledge.hi, knowledge.hi)
        return [*super().know(now, said), *self.progress(now, done)]


class Plugin:
    """As an entry point would name it."""

    @hookimpl
    def open_routing(self) -> WithAnother:
        return WithAnother()


@pytest.fixture(autouse=True)
def _router(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin, as if it were installed."""
    manager = pluggy.PluginManager("gapless")
    manager.add_hookspecs(hookspecs)
    manager.register(Plugin())
    load = plugins.load
    monkeypatch.setattr(
        plugins,
        "load",
        lambda kind, name: manager.hook.open_routing if name == "with_another" else load(kind, name),
    )


async def gaps_then_events(subscription: Any, count: int) -> tuple[list[gapless.Gap], list[gapless.Event]]:
    """All that is told, up to so many events: first what its SHB had seen, and then what it missed, is a gap."""
    gaps: list[gapless.Gap] = []
    events: list[gapless.Event] = []
    async for message in subscription:
        if isinstance(message, gapless.Gap):
            assert not events, "in order"
            gaps.append(message)
        elif isinstance(message, gapless.Event):
            events.append(message)
        if len(events) == count:
            break
    return gaps, events


@pytest.mark.timeout(60)
async def test_who_comes_back_after_it_was_retired_is_told_of_a_gap(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    async with running_node(volume, **SETTINGS) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session:
            async with session.subscribe("t", name="away") as away:
                token = away.token
            kept = await publish(session, 5)
            await asyncio.sleep(0.5)
            assert await lost(connection) < kept[0].tick, "it is counted, and has them to come"
            [pubend] = await connection.pubends()
            [own] = [shb for shb in pubend.shbs if shb != ANOTHER]

    async with running_node(volume, node={"roles": ["phb"]}, **SETTINGS) as node:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            await publish(session, 1, first=5)
            await asyncio.sleep(0.5)
            assert await lost(connection) < kept[0].tick, "the log waits for it while it is away"

            done = await asyncio.to_thread(
                CliRunner().invoke, app, ["retire", own.partition("@")[0], "--yes", "--json", "--url", node.url]
            )
            assert done.exit_code == 0, done.output
            assert f'"{own}"' in done.stdout
            late = await publish(session, 1, first=6)
            await until_lost(connection, late[-1].tick)

    async with running_node(volume, **SETTINGS) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session:
            async with session.subscribe("t", name="away", start=token, on_gap="deliver") as away:
                fresh = await publish(session, 3, first=7)
                gaps, events = await gaps_then_events(away, 3)
            [pubend] = await connection.pubends()

    assert gaps[0].start == token.ticks[gaps[0].pubend]
    assert all(one.end == other.start for one, other in pairwise(gaps)), "nothing lies between the pieces"
    assert late[-1].tick <= gaps[-1].end < fresh[0].tick
    assert [event.properties["n"] for event in events] == [7, 8, 9]
    assert own in pubend.shbs, "it is counted anew"

"""The router `delta` on real nodes: brokers in a row that die or stand still, and events that go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from integration.command_line import Shell
from integration.tree_of_brokers import (
    SELECTOR,
    AsyncConsumer,
    BlockingConsumer,
    Consumer,
    JmsConsumer,
    Publishing,
    Tree,
    stalled,
    tree,
)

pytestmark = pytest.mark.timeout(240)
NAMED_WITHIN = 3.0
"""Seconds in which `gapless doctor` names a bypass."""
CHAIN = {"phb": ["phb"], "i": [], "j": [], "k": [], "shb": ["shb"]}
HUB = {"phb": ["phb"], "hub": [], "s1": ["shb"], "s2": ["shb"], "s3": ["shb"]}


class Script:
    """Applications at a tree, and what is done to its brokers while they work."""

    def __init__(self, network: Tree, publishing: Publishing, consumers: Sequence[Consumer]) -> None:
        self.network = network
        self.publishing = publishing
        self.consumers = consumers
        self.stalls: dict[str, float] = {}
        """How long nothing new came to anybody after something was done."""

    async def flow(self, since: float) -> None:
        """Waits until everybody has what was sent after a moment."""
        sent = self.publishing.sent
        while not sent or sent[-1] <= since:
            await asyncio.sleep(0.01)
        first = next(number for number, at in enumerate(sent) if at > since)
        for consumer in self.consumers:
            await consumer.until(first)

    async def note(self, what: str, since: float) -> None:
        """Waits until everybody has what was sent after a moment, and notes how long it took."""
        await self.flow(since)
        self.stalls[what] = max(stalled(self.publishing.sent, each.came, since) for each in self.consumers)

    async def end(self) -> None:
        """Everything that was published has come to everybody it is for, once and in order."""
        count = await self.publishing.end()
        for consumer in self.consumers:
            wanted = consumer.wanted(count)
            await consumer.until(wanted[-1])
            assert [number for number, _ in consumer.came] == wanted, consumer.name


@contextlib.asynccontextmanager
async def chain_of_five(directory: Path, router: str) -> AsyncIterator[Script]:
    """A PHB, three brokers between, and an SHB with three applications."""
    async with contextlib.AsyncExitStack() as stack:
        network = await stack.enter_async_context(tree(directory, CHAIN, pairwise(CHAIN), router))
        url = network.nodes["shb"].url
        consumers = [
            AsyncConsumer(url, "one", "all", ""),
            BlockingConsumer(url, "two", "odd", SELECTOR),
            JmsConsumer(url, "three", "all", ""),
        ]
        yield await began(stack, network, consumers)


@contextlib.asynccontextmanager
async def hub_of_four(directory: Path, router: str) -> AsyncIterator[Script]:
    """A broker, and around it a PHB and three SHBs with an application each."""
    async with contextlib.AsyncExitStack() as stack:
        links = [("hub", name) for name in HUB if name != "hub"]
        network = await stack.enter_async_context(tree(directory, HUB, links, router))
        kinds = {"s1": AsyncConsumer, "s2": BlockingConsumer, "s3": JmsConsumer}
        consumers = [
            kind(network.nodes[name].url, network.client_at(name), name, SELECTOR if name == "s2" else "")
            for name, kind in kinds.items()
        ]
        yield await began(stack, network, consumers)


async def began(
    stack: contextlib.AsyncExitStack, network: Tree, consumers: Sequence[AsyncConsumer | BlockingConsumer | JmsConsumer]
) -> Script:
    """The script of a network whose applications work, and whose nodes are all served by their neighbours."""
    for consumer in consumers:
        await stack.enter_async_context(consumer.running())
    publishing = await stack.enter_async_context(Publishing(network.nodes["phb"].url))
    script = Script(network, publishing, consumers)
    await script.flow(time.monotonic())
    await network.until_whole()
    return script


async def killed(
    script: Script, what: str, *names: str, empty: bool, away: float, told: tuple[str, str] | None
) -> None:
    """Brokers die, are away for some seconds at least, and come back. `told`: at which node the doctor says what."""
    network, since = script.network, time.monotonic()
    await network.kill(*names)
    await passed(script, what, since, away, told)
    await network.start(*names, empty=empty)
    await network.until_whole()
    await script.note(f"{what}, back", time.monotonic())


async def stopped(script: Script, what: str, *names: str, away: float, told: tuple[str, str] | None) -> None:
    """Brokers stand still for some seconds at least, and go on."""
    network, since = script.network, time.monotonic()
    network.stop(*names)
    try:
        await passed(script, what, since, away, told)
    finally:
        network.go_on(*names)
    await network.until_whole()
    await script.note(f"{what}, back", time.monotonic())


async def passed(script: Script, what: str, since: float, away: float, told: tuple[str, str] | None) -> None:
    """Where somebody tells of the bypass, events go on while the brokers are away; else nobody waits for them."""
    if told is not None:
        await script.network.until_found(*told)
        took = time.monotonic() - since
        script.stalls[f"{what}, named"] = took
        assert took < NAMED_WITHIN, what
        await script.note(what, since)
    await asyncio.sleep(max(0.0, since + away - time.monotonic()))


async def test_a_chain_of_five_goes_on_while_one_or_two_are_away(tmp_path: Path) -> None:
    async with chain_of_five(tmp_path, "delta") as script:
        network = script.network
        await killed(script, "one killed", "j", empty=False, away=0, told=("k", "node j is bypassed: k is served by i"))
        await stopped(script, "two stopped", "i", "j", away=0, told=("k", "node i is bypassed: k is served by phb"))
        since = time.monotonic()
        await network.kill("j", "k")
        await passed(script, "two killed", since, 0, ("shb", "node k is bypassed: shb is served by i"))
        shell = Shell(tmp_path)
        arguments = ("doctor", "--network", network.file, "--url", network.nodes["shb"].url, "--json")
        done = await asyncio.to_thread(shell.run, *arguments, status=1)
        await network.start("j", "k", empty=True)
        await network.until_whole()
        await script.end()

    seen = json.loads(done.stdout)
    assert {"node": "shb", "host": "phb", "served_by": ["i"], "past": ["k", "j"], "pubends": 1, "cut": 0} in seen[
        "services"
    ]
    for name in ("j", "k"):
        assert f"node {name} is bypassed: shb is served by i. Events go on past it. Start it" in seen["findings"]
    print(script.stalls)


async def test_around_a_hub_that_is_away_all_go_on(tmp_path: Path) -> None:
    async with hub_of_four(tmp_path, "delta") as script:
        await killed(script, "hub killed", "hub", empty=True, away=0, told=("s2", "node hub is bypassed: s2 is served"))
        await stopped(script, "hub stopped", "hub", away=0, told=("s3", "node hub is bypassed: s3 is served by phb"))
        await script.end()
    print(script.stalls)

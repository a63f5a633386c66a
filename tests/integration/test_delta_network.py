"""The router `delta` on real nodes: brokers in a row that die or stand still, and events that go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pytest

from integration.broker_process import run_broker, to_toml
from integration.command_line import Shell
from integration.networks_in_process import SECRET
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
AWAY = 3.0
"""Seconds for which brokers are away in the long scripts: longer than a bypass takes."""
HUB = {"phb": ["phb"], "hub": [], "s1": ["shb"], "s2": ["shb"], "s3": ["shb"]}

Made: TypeAlias = "Callable[[Path, str], AbstractAsyncContextManager[Script]]"
Play: TypeAlias = "Callable[[Script], Awaitable[None]]"


class Script:
    """Applications at a tree, and what is done to its brokers while they work."""

    def __init__(self, network: Tree, publishing: Publishing, consumers: Sequence[Consumer]) -> None:
        self.network = network
        self.publishing = publishing
        self.consumers = consumers
        self.named: dict[str, float] = {}
        """After how many seconds `gapless doctor` named a bypass."""
        self.done: dict[str, tuple[float, Sequence[str]]] = {}
        """When something was done, and to which nodes."""

    async def kill(self, told: tuple[str, str], *names: str, empty: bool, away: float = 0) -> None:
        """Brokers die, and come back after some seconds, or when they are bypassed. `empty`: with another disk.

        `told`: at which node `gapless doctor` says what of the bypass.
        """
        disk = "without its disk" if empty else "with its disk"
        what, since = f"{' and '.join(names)} killed, {disk}", time.monotonic()
        self.done[what] = since, names
        await self.network.kill(*names)
        await self.pass_by(what, told, away)
        await self.network.start(*names, empty=empty)
        await self.come_back(f"{' and '.join(names)} started, {disk}")

    async def stop(self, told: tuple[str, str], *names: str, away: float = 0) -> None:
        """Brokers stand still, and go on after some seconds, or when they are bypassed. `told`: as of `kill`."""
        what, since = f"{' and '.join(names)} stopped", time.monotonic()
        self.done[what] = since, names
        self.network.stop(*names)
        try:
            await self.pass_by(what, told, away)
        finally:
            self.network.go_on(*names)
        await self.come_back(f"{' and '.join(names)} go on")

    async def pass_by(self, what: str, told: tuple[str, str], away: float) -> None:
        """Under `delta` the doctor names the bypass, and events go on; for so long nobody comes back at least."""
        since, names = self.done[what]
        if self.network.router == "delta":
            await self.network.until_found(*told)
            self.named[what] = time.monotonic() - since
            if not any(self.network.roles[name] for name in names):  # for an SHB's listings it waits three seconds
                assert self.named[what] < NAMED_WITHIN, what
            await self.flow(since, names)
        await asyncio.sleep(max(0.0, since + away - time.monotonic()))

    async def come_back(self, what: str) -> None:
        """Waits until all is as it was, and events go on."""
        since = time.monotonic()
        await self.network.until_whole()
        self.done[what] = since, ()
        await self.flow(time.monotonic(), ())

    async def flow(self, since: float, without: Sequence[str]) -> None:
        """Waits until everybody has something that was sent later, but for those at certain nodes."""
        first = await self.publishing.until_sent(since)
        for consumer in self.consumers:
            if consumer.at not in without:
                await consumer.until(first)

    async def end(self) -> None:
        """Everything that was published has come to everybody it is for, once and in order."""
        count = await self.publishing.end()
        for consumer in self.consumers:
            wanted = consumer.wanted(count)
            await consumer.until(wanted[-1])
            assert [number for number, _ in consumer.came] == wanted, consumer.name

    def stalls(self) -> dict[str, float]:
        """How long after each thing that was done the first event that was sent later came everywhere."""
        sent = self.publishing.sent
        return {
            what: max(stalled(sent, each.came, since) for each in self.consumers if each.at not in names)
            for what, (since, names) in self.done.items()
        }


@contextlib.asynccontextmanager
async def chain_of_five(directory: Path, router: str) -> AsyncIterator[Script]:
    """A PHB, three brokers between, and an SHB with three applications."""
    async with contextlib.AsyncExitStack() as stack:
        network = await stack.enter_async_context(tree(directory, CHAIN, pairwise(CHAIN), router))
        node = network.nodes["shb"]
        consumers = [
            AsyncConsumer(node, "one", "all", ""),
            BlockingConsumer(node, "two", "odd", SELECTOR),
            JmsConsumer(node, "three", "all", ""),
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
            kind(network.nodes[name], network.client_at(name), name, SELECTOR if name == "s2" else "")
            for name, kind in kinds.items()
        ]
        yield await began(stack, network, consumers)


async def began(stack: contextlib.AsyncExitStack, network: Tree, consumers: Sequence[Consumer]) -> Script:
    """The script of a network whose applications work, and whose nodes are all served by their neighbours."""
    for consumer in consumers:
        await stack.enter_async_context(consumer.running())
    publishing = await stack.enter_async_context(Publishing(network.nodes["phb"].url))
    script = Script(network, publishing, consumers)
    await script.flow(time.monotonic(), ())
    await network.until_whole()
    return script


async def test_a_chain_of_five_goes_on_while_one_or_two_are_away(tmp_path: Path) -> None:
    async with chain_of_five(tmp_path, "delta") as script:
        network, shell = script.network, Shell(tmp_path)
        await script.kill(("k", "node j is bypassed: k is served by i"), "j", empty=False)
        await script.stop(("k", "node i is bypassed: k is served by phb"), "i", "j")
        await network.kill("j", "k")
        await network.until_found("shb", "node k is bypassed: shb is served by i")
        arguments = ("doctor", "--network", network.file, "--url", network.nodes["shb"].url, "--json")
        done = await asyncio.to_thread(shell.run, *arguments, status=1)
        await network.start("j", "k", empty=True)
        await script.come_back("j and k started")
        await script.end()

    seen = json.loads(done.stdout)
    row = {"node": "shb", "host": "phb", "served_by": ["i"], "past": ["k", "j"], "pubends": 1, "cut": 0}
    assert row in seen["services"]
    for name in ("j", "k"):
        assert f"node {name} is bypassed: shb is served by i. Events go on past it. Start it" in seen["findings"]


async def test_around_a_hub_that_is_away_all_go_on(tmp_path: Path) -> None:
    async with hub_of_four(tmp_path, "delta") as script:
        await script.kill(("s2", "node hub is bypassed: s2 is served by phb"), "hub", empty=True)
        await script.stop(("s3", "node hub is bypassed: s3 is served by phb"), "hub")
        await script.end()


def test_what_is_no_such_tree_is_refused_wherever_somebody_comes_in(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    nodes = [
        {"name": name, "address": f"127.0.0.1:{7500 + at}"} | ({"cell": "x"} if name in "de" else {})
        for at, name in enumerate("abcde")
    ]
    network = {"name": "flights", "secret": SECRET, "router": "delta"}
    sections = to_toml({"network": network, "routing": {"delta": 9}, "node": nodes})
    file.write_text(f'links = [["a", "b"], ["b", "c"], ["c", "a"]]\n{sections}', "utf-8")

    for said in (
        Shell(tmp_path).run("network", file, "--check", status=2).stderr,
        run_broker(tmp_path / "a", {"network": {"file": str(file), "node": "a"}}, "--create").error,
    ):
        assert "the nodes 'd', 'e' stand together at 'x'" in said
        assert "the link from 'b' to 'c' makes a cycle, and the nodes must be a tree" in said
        assert "no link leads from 'a' to 'd': every node must be connected" in said
        assert "routing.options.delta is a number from 1 to 8, not 9" in said
        assert "Traceback" not in said


async def chain_script(script: Script) -> None:
    """One and two in a row are away, each for three seconds, with their disks and without."""
    one, two = ("k", "node j is bypassed: k is served by i"), ("shb", "node k is bypassed: shb is served by i")
    for empty in (False, True):
        await script.kill(one, "j", empty=empty, away=AWAY)
        await script.kill(two, "j", "k", empty=empty, away=AWAY)
    await script.stop(one, "j", away=AWAY)
    await script.stop(two, "j", "k", away=AWAY)
    await script.end()


async def hub_script(script: Script) -> None:
    """The hub is away, and the hub and an SHB."""
    told = ("s2", "node hub is bypassed: s2 is served by phb")
    for empty in (False, True):
        await script.kill(told, "hub", empty=empty, away=AWAY)
    await script.kill(told, "hub", "s1", empty=False, away=AWAY)
    await script.stop(told, "hub", away=AWAY)
    await script.stop(told, "hub", "s1", away=AWAY)
    await script.end()


@pytest.mark.long
@pytest.mark.parametrize(
    ("made", "play"), [(chain_of_five, chain_script), (hub_of_four, hub_script)], ids=["chain", "hub"]
)
async def test_under_knowledge_everybody_has_the_same_later(made: Made, play: Play, tmp_path: Path) -> None:
    """What was measured is left beside the logs of the nodes."""
    stalls = {}
    for router in ("delta", "knowledge"):
        async with made(tmp_path / router, router) as script:
            await play(script)
        stalls[router] = script.stalls()
        lines = [f"{router} {what}: {took:.2f} s" for what, took in stalls[router].items()]
        lines += [f"{router} {what}, named by doctor: {took:.2f} s" for what, took in script.named.items()]
        (tmp_path / f"{router}.txt").write_text("\n".join([*lines, ""]), "utf-8")

    assert stalls["delta"].keys() == stalls["knowledge"].keys()
    for what, took in stalls["delta"].items():
        if "killed" in what or "stopped" in what:
            assert took < AWAY < stalls["knowledge"][what], what


@pytest.mark.long
async def test_a_leaf_comes_and_goes_and_nobody_misses_anything(tmp_path: Path) -> None:
    """As docs/howto/change-a-tree-of-brokers.md has it."""
    async with chain_of_five(tmp_path, "delta") as script:
        network = script.network
        network.add("leaf", ["shb"], "j")
        await start_again(script, "j", "i", "k", "phb", "shb")  # those near it first
        await network.nodes["leaf"].start()
        late = AsyncConsumer(network.nodes["leaf"], network.client_at("leaf"), "late", "")
        async with late.running():
            await late.until(await script.publishing.until_sent(time.monotonic()))
            since = late.came[0][0]
            await script.flow(time.monotonic(), ())
        await network.retire("leaf")
        await start_again(script, "j", "i", "k", "phb", "shb")
        await script.end()

    assert [number for number, _ in late.came] == [*range(since, late.came[-1][0] + 1)]


async def start_again(script: Script, *names: str) -> None:
    """Nodes end in order and start again with the file as it is now, one after the other."""
    for name in names:
        node = script.network.nodes[name]
        assert await node.stop() == 0
        await node.start()
        await script.network.until_whole()
        await script.flow(time.monotonic(), ())

"""Many subscriptions at one SHB: how long a broker that has lost their interest does without it, and its longest turn.

    PHB – IB (high) – IB (low) – SHB

The four routers are real, and so is every frame. A node is what its event loop is: one turn after the other, each of
which takes in all that has come meanwhile. A turn lasts as long as the processor time that it took; links take 0.1 ms
and a microsecond for each 100 bytes, and are never full. So what is measured does not depend on how many processors
there are. Measured are

1. `first`: the SHB says its interest to a network that knows nothing of it;
2. `low`, `high`: that IB is killed, and is there again after a second;
3. `low_after_a_minute`: it is there again after a minute, in which all behind it have forgotten the SHB.

Of each: the seconds from the (re)start until every broker has all of it, and the longest turn of each node.

    python -m bench network interest [--json] [--count 100000]
"""

from __future__ import annotations

import gc
import random
import time
from argparse import ArgumentParser
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.processes import table
from bench.subscriptions import KINDS
from gapless.core.network.facts import (
    FrameArrived,
    Interest,
    LinkDown,
    LinkUp,
    NetworkMap,
    NetworkNode,
    SendFrame,
    Wake,
)
from gapless.core.network.seam import Effect, RouterContext
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.node.node import cycles_sought_seldom
from gapless.selectors.filters import Filter
from gapless_routing.knowledge.router import KnowledgeRouter

CHAIN: Final = ("phb", "high", "low", "shb")
ROLES: Final = {"phb": ("phb",), "shb": ("shb",)}
NETWORK: Final = NetworkMap(
    {name: NetworkNode(frozenset(ROLES.get(name, ())), f"{name}-cell") for name in CHAIN}, tuple(pairwise(CHAIN))
)
SHB: Final = "shb@bench"
LINK_DELAY: Final = MILLISECOND // 10
BYTE_DELAY: Final = 10
"""Nanoseconds."""
TIMER_GRAIN: Final = MILLISECOND
REPEATED: Final = SECOND
"""How often the SHB says its version again; its core does so at least every few seconds."""
WAITED_MAX: Final = 300 * SECOND


class Node:
    """One router, and what waits for its next turn."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.router = KnowledgeRouter()
        self.inbox: deque[tuple[int, object]] = deque()
        self.free_at = 0
        """When its turn ends."""
        self.links: dict[str, int] = {}
        self.longest = 0
        """Nanoseconds of processor time."""
        self.alive = False

    def due(self) -> int | None:
        """When its next turn begins."""
        wake = self.router.next_wake()
        first = [self.inbox[0][0]] if self.inbox else []
        first += [] if wake is None else [max(wake, self.free_at + TIMER_GRAIN)]
        return max(min(first), self.free_at) if first and self.alive else None

    def turn(self, now: int) -> list[Effect]:
        """All that has come, and the timer."""
        effects: list[Effect] = []
        handlers = self.router.handlers()
        started = time.process_time_ns()
        while self.inbox and self.inbox[0][0] <= now:
            fact = self.inbox.popleft()[1]
            effects += handlers[type(fact)](now, fact)
        wake = self.router.next_wake()
        if wake is not None and wake <= now:
            effects += self.router.wake(now, Wake())
        taken = time.process_time_ns() - started
        self.free_at = now + taken
        self.longest = max(self.longest, taken)
        return effects


class Chain:
    """The four nodes, under a time of their own."""

    def __init__(self, count: int) -> None:
        self.now = SECOND
        self.count = count
        self.version = 1
        self.nodes = {name: Node(name) for name in CHAIN}
        self._numbers = 0
        self._repeat_at = self.now
        for name in CHAIN:
            self.start(name)

    def interest(self) -> Interest:
        """All of it, as the SHB's core says it."""
        kind = KINDS["equality"]
        add = {n + 1: Filter.known((kind.topic(n),), kind.selector(n)) for n in range(self.count)}
        return Interest(SHB, 0, self.version, add, full=True)

    def start(self, name: str) -> None:
        """A node begins, without any memory."""
        node = self.nodes[name] = Node(name)
        node.alive, node.free_at = True, self.now
        seed = random.Random(name).getrandbits(32)  # noqa: S311 - the same in every run
        self._carry_out(node, node.router.start(self.now, RouterContext(name, seed, NETWORK)))
        for one, other in pairwise(CHAIN):
            if name in (one, other) and all(self.nodes[end].alive for end in (one, other)):
                for end, peer in ((one, other), (other, one)):
                    self._numbers += 1
                    self.nodes[end].links[peer] = self._numbers
                    roles = frozenset(ROLES.get(peer, ()))
                    self.tell(end, LinkUp(self._numbers, peer, roles, 1))

    def kill(self, name: str) -> None:
        """A node is gone, and its links with it."""
        self.nodes[name].alive = False
        for node in self.nodes.values():
            link = node.links.pop(name, None)
            if link is not None:
                self.tell(node.name, LinkDown(link))

    def tell(self, name: str, fact: object) -> None:
        """A fact waits for a node's next turn."""
        self.nodes[name].inbox.append((self.now, fact))

    def pass_time(self, span: int) -> None:
        """So much of it."""
        end = self.now + span
        while self._step(end):
            pass

    def until_all_have_it(self) -> float:
        """Seconds until the tables of all but the SHB have its version."""
        started = self.now
        while not self._settled():
            if self.now - started > WAITED_MAX or not self._step(self.now + SECOND):
                raise AssertionError("the interest does not arrive")
        return (max(self.now, *(node.free_at for node in self.nodes.values())) - started) / SECOND

    def versions(self, name: str) -> dict[str, int]:
        """What a node has of the SHBs below it."""
        below = CHAIN[CHAIN.index(name) + 1]
        return self.nodes[name].router._interests.table.versions([f"{below}-cell"])  # noqa: SLF001 - nobody else asks

    def longest(self) -> dict[str, float]:
        """Milliseconds of each node's longest turn since the last call."""
        found = {name: node.longest / MILLISECOND for name, node in self.nodes.items()}
        for node in self.nodes.values():
            node.longest = 0
        return found

    def _settled(self) -> bool:
        return all(self.versions(name) == {SHB: self.version} for name in CHAIN[:-1])

    def _step(self, end: int) -> bool:
        """The next turn of any node. Returns False when there is none before `end`."""
        due = [(at, name) for name, node in self.nodes.items() if (at := node.due()) is not None]
        at, name = min(due)
        if self._repeat_at <= min(at, end):
            self.now = max(self.now, self._repeat_at)
            self._repeat_at += REPEATED
            if self.count:
                self.tell("shb", Interest(SHB, self.version, self.version, {}))
            return True
        if at > end:
            self.now = end
            return False
        self.now = max(self.now, at)
        self._carry_out(self.nodes[name], self.nodes[name].turn(self.now))
        return True

    def _carry_out(self, node: Node, effects: Iterable[Effect]) -> None:
        peers = {link: peer for peer, link in node.links.items()}
        at = node.free_at + LINK_DELAY
        for effect in effects:
            if isinstance(effect, SendFrame) and effect.link in peers:
                other = self.nodes[peers[effect.link]]
                at += BYTE_DELAY * len(effect.frame)
                place = len(other.inbox)
                while place and other.inbox[place - 1][0] > at:
                    place -= 1
                other.inbox.insert(place, (at, FrameArrived(other.links[node.name], effect.frame, 0)))


def add_options(parser: ArgumentParser) -> None:
    """How many."""
    parser.add_argument("--count", type=int, default=100_000, metavar="N", help="subscriptions at the SHB")


def run(*, json: bool, count: int) -> dict[str, Any]:
    """Measures it; returns the figures."""
    with cycles_sought_seldom():
        figures = _measured(count)
    if not json:
        table(f"the interest of {count:,} subscriptions at one SHB behind two IBs", figures)
    return figures


def _measured(count: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    before = _resident_bytes()
    chain = Chain(count)
    interest = chain.interest()
    chain.pass_time(10 * SECOND)
    chain.longest()

    def note(what: str) -> None:
        figures[f"{what}_s"] = chain.until_all_have_it()
        chain.pass_time(15 * SECOND)
        figures.update({f"{what}_longest_turn_{name}_ms": at for name, at in chain.longest().items()})

    chain.tell("shb", interest)
    note("first")
    figures["memory_bytes_per_subscription_and_node"] = (_resident_bytes() - before) / count / len(CHAIN)
    for name, down in (("low", 1), ("high", 1), ("low_after_a_minute", 60)):
        node = name.partition("_")[0]
        chain.kill(node)
        chain.pass_time(down * SECOND)
        chain.longest()
        chain.start(node)
        note(name)
    return figures


def _resident_bytes() -> int:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0

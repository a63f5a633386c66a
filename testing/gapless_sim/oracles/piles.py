"""D8: where the router `delta` keeps events for an SHB that is away (protocol: delta-router)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gapless.core.stream.knowledge import Knowledge
from gapless_sim.oracles.copies import DETECTED_WITHIN, Full, Outages, is_lossless
from gapless_sim.oracles.delta import TreeJudge
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from gapless.core.network.frames import Address, Message
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.frame_tap import Hop
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker

LET_GO_WITHIN: Final = 5 * SECOND
"""So long after the window an event is there: it is looked at once a second, and so are reports, by any clock."""
KEPT: Final = "delta.kept for who is away"
SOMETIMES = (KEPT,)


@dataclass(slots=True, eq=False)
class Kept:
    """An event, and when its pubend said it."""

    pubend: PubendId
    home: str
    tick: Tick
    at: int


class D8Pile(TreeJudge):
    """What is older than the window is kept for SHBs that are away alone, at the δ + 1 brokers before each.

    Judged where nobody else came or went meanwhile: what comes back may have holes, above which its copies begin. And
    what somebody asked for is cached on its way until there is no room for it.
    """

    name = "D8"

    def __init__(self, model: Model, full: Full) -> None:
        super().__init__(model)
        self._full = full
        self._is_on = is_lossless(self.world.options)
        self._outages = Outages()
        self._kept: deque[Kept] = deque()
        self._seen: set[tuple[PubendId, Tick]] = set()
        self._asked: set[tuple[PubendId, Tick]] = set()

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A pubend says something."""
        if not self._is_on or not self.knows(broker):
            return
        for tick in knowledge.data.ticks:
            event = knowledge.pubend, tick
            if knowledge.reply:
                self._asked.add(event)
            elif event not in self._seen:
                self._seen.add(event)
                self._kept.append(Kept(knowledge.pubend, broker, tick, self.world.now))

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """That it comes makes no difference."""

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """Somebody is answered."""
        if self._is_on and isinstance(message, Knowledge) and message.reply:
            self._asked.update((message.pubend, tick) for tick in message.data.ticks)

    def crashed(self, broker: SimBroker) -> None:
        """A broker is away from now on."""
        self._outages.since[broker.name] = self.world.now

    def booted(self, broker: SimBroker) -> None:
        """It is back, and has much to learn."""
        self._outages.back[broker.name] = self.world.now

    def checkpoint(self) -> None:
        """Looks for what should not be there any more."""
        within = self.world.options.window_seconds * SECOND + LET_GO_WITHIN
        while self._kept and self.world.now - self._kept[0].at > within:
            event = self._kept.popleft()
            away = list(self._away(event))
            if (event.pubend, event.tick) not in self._asked and self._is_judged(event, away):
                self._judge(event, away)

    def _judge(self, event: Kept, away: list[str]) -> None:
        reach = self.world.options.delta + 1
        before = {broker for shb in away for broker in self.path(event.home, shb)[:-1][-reach:]}
        for node in self.world.brokers:
            if not self.world.brokers[node].running or not self._has(node, event):
                continue
            if node not in before:
                self.fail(
                    f"{node} still has the event of {event.pubend} at {event.tick}, and is none of the {reach} brokers"
                    f" before one that is away: {', '.join(away) or 'nobody'}"
                )
            self.world.sometimes(KEPT)

    def _away(self, event: Kept) -> Iterator[str]:
        topology = self.world.topology
        assert topology is not None
        for node in topology.cell_of:
            if self._outages.is_out(node, event.at - DETECTED_WITHIN):
                yield node

    def _is_judged(self, event: Kept, away: list[str]) -> bool:
        """Whether nobody was away on whom others depend for the pubend, and every link had room."""
        topology = self.world.topology
        assert topology is not None
        nodes = [node for node in topology.cell_of if node != event.home]
        inner = {before for node in nodes for before in self.path(event.home, node)[:-1]}
        return self._full.is_over(event.at) and not any(node in inner or node == event.home for node in away)

    def _has(self, node: str, event: Kept) -> bool:
        """What a router keeps is said in no frame: so it is looked at."""
        streams = self.world.seam.router_of(node)._streams._streams  # noqa: SLF001 - it is said nowhere else
        stream = streams.get(event.pubend)
        return stream is not None and bool(stream.cache.take(event.tick - 1, event.tick))

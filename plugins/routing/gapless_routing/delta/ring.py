"""Links to the nearest live brokers, and what each of them can do (protocol: delta-router).

A broker wishes for a link to each neighbour. Where one goes away, or does not answer for a while, it wishes for links
to those beyond it, as many hops away as its reach is; toward a pubend also where one is there and of no use. Every
broker says once a second, and on every change, what it can do (`Status`). A link that both ends no longer wish for is
hung up by one of them: if each did it by itself, the other would make it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.network.facts import BrokerId, Real
from gapless.core.network.frames import Private
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.ticks import PubendId
from gapless_routing.common.link_table import LinkTable
from gapless_routing.common.router_state import RouterState
from gapless_routing.delta.options import Options
from gapless_routing.delta.tree import Tree

STATUS: Final = 10
"""The kind of a `Private` that holds a Status."""
BEAT: Final = 1 * SECOND
STATUS_LASTS: Final = 3 * SECOND
"""Who has said nothing for so long counts as unready, and as cut off from every pubend."""
WISH_LASTS: Final = 10 * SECOND
"""A link that is there is wished for so long after it was needed last: a broker that comes and goes costs no links
each time."""


class Status(Struct, array_like=True, frozen=True, gc=False):
    """What a broker can do for the one that it sends this to."""

    life: Real
    number: Real
    """Rises within one life."""
    ready: bool
    """Whether it knows what everybody wants, in every direction."""
    cut: tuple[PubendId, ...]
    """The pubends of which nothing comes to it."""
    wants: bool
    """Whether it wishes for this link."""
    reports: bytes
    """What it and others have of pubends, once a second; b"" where there is nothing to be said of that."""


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(Status, "a status")


class Ring:
    """The brokers around this one, within its reach."""

    def __init__(self, state: RouterState, tree: Tree, options: Options) -> None:
        self._state = state
        self._tree = tree
        self._options = options
        self.life: Final = state.life
        """Of this process, for its services and copies: for placing it may have to take a higher one, and goes on."""
        self.links = LinkTable(state, tree.neighbours, welcome=tree.near)
        self._wished: dict[BrokerId, None] = dict.fromkeys(tree.neighbours)
        self._away_since: dict[BrokerId, int] = {}
        """Since when a broker that is wished for is away."""
        self._useless_since: dict[BrokerId, int] = {}
        """Since when a broker that is there is of no use toward a pubend."""
        self._needless_since: dict[BrokerId, int] = {}
        """Since when a broker that is wished for is not needed any more."""
        self._heard: dict[BrokerId, tuple[Status, int]] = {}
        """What each broker said last, and when."""
        self._said: dict[BrokerId, Status] = {}
        self._number = 0
        self.ready = False
        """Whether this broker knows what everybody wants. Once it does, it stays so: changes come as they are made."""
        self.cut: tuple[PubendId, ...] = ()
        """The pubends of which nothing comes here."""

    def start(self) -> None:
        """Dials the neighbours."""
        self._away_since = dict.fromkeys(self._tree.neighbours, self._state.now)
        self.links.start()
        self._state.timers.set(("beat",), self._state.now + BEAT)
        self._state.timers.set(("ring",), self._state.now + self._options.ring_wait)

    # ------------------------------------------------------------------------------------ who is there

    def nearest(self, direction: BrokerId) -> list[BrokerId]:
        """Returns the nearest live brokers in the direction of a neighbour."""
        found: list[BrokerId] = []
        waiting = [direction]
        for broker in waiting:  # which grows
            if broker in self.links:
                found.append(broker)
            elif self._tree.distance(broker) < self._tree.reach:
                waiting += self._tree.away(broker)
        return found

    def on_way(self, to: BrokerId) -> list[BrokerId]:
        """Returns the live brokers on the way to another one, the nearest first."""
        return [broker for broker in self._tree.path(to)[: self._tree.reach] if broker in self.links]

    def is_ready(self, broker: BrokerId) -> bool:
        """Whether a broker knows what everybody wants, as it said lately."""
        said = self._fresh(broker)
        return said is not None and said.ready

    def is_cut(self, broker: BrokerId, pubend: PubendId) -> bool:
        """Whether nothing of a pubend comes to a broker, as far as it said lately."""
        said = self._fresh(broker)
        return said is None or pubend in said.cut

    def life_of(self, broker: BrokerId) -> int | None:
        """Returns the life of which a broker has spoken on its link; None: it has not."""
        said = self._heard.get(broker)
        return None if said is None else said[0].life

    def _fresh(self, broker: BrokerId) -> Status | None:
        said = self._heard.get(broker)
        return said[0] if said is not None and self._state.now - said[1] <= STATUS_LASTS else None

    # --------------------------------------------------------------------------------- what happened

    def link_up(self, broker: BrokerId) -> None:
        """A link is there."""
        self._away_since.pop(broker, None)
        self._said.pop(broker, None)

    def link_down(self, broker: BrokerId) -> None:
        """A link is gone. Without another one its broker is away."""
        self._said.pop(broker, None)
        if broker not in self.links:
            self._heard.pop(broker, None)
            self._useless_since.pop(broker, None)
            if broker in self._wished:  # it was there, so there is nothing to wait for
                self._away_since[broker] = self._state.now - self._options.ring_wait

    def on_status(self, broker: BrokerId, data: bytes) -> bytes:
        """A broker says what it can do; returns what it reports. Raises RemoteProtocolError if that makes no sense."""
        said = _decode(data)
        before = self._heard.get(broker)
        if before is None or before[0].life != said.life or before[0].number < said.number:
            self._heard[broker] = said, self._state.now
        return said.reports

    # -------------------------------------------------------------------------------- which links to have

    def reconsider(self, sources: Iterable[tuple[PubendId, BrokerId]], servers: Iterable[BrokerId]) -> None:
        """Wishes for the links that are needed now, and for no others.

        `sources`: the pubends elsewhere, and where each is. `servers`: who serves this broker, or was asked to.
        """
        wanted = self._wanted(sources, servers)
        for broker in wanted:
            self._needless_since.pop(broker, None)
            if broker not in self._wished:
                self._wished[broker] = None
                if broker not in self.links:
                    self._wait(self._away_since, broker)
                self.links.wish(broker)
        for broker in [broker for broker in self._wished if broker not in wanted]:
            since = self._needless_since.setdefault(broker, self._state.now)
            # Who is away, and not needed, is no more dialled: else all who have passed it by greet it when it is back.
            if broker not in self.links or self._state.now - since >= WISH_LASTS:
                del self._wished[broker], self._needless_since[broker]
                self._away_since.pop(broker, None)
                self.links.let_go(broker)
        for broker in list(self.links):
            if self._is_needless(broker):
                self.links.hang_up(broker)

    def _wanted(
        self, sources: Iterable[tuple[PubendId, BrokerId]], servers: Iterable[BrokerId]
    ) -> dict[BrokerId, None]:
        beyond: dict[BrokerId, dict[BrokerId, None]] = {}
        """Of a broker that is there, and of no use toward a pubend: who is next on the way."""
        toward = dict.fromkeys(servers)
        for pubend, home in sources:
            path = self._tree.path(home)[: self._tree.reach]
            toward.update(dict.fromkeys(path))
            for broker, following in pairwise(path):
                if broker in self.links and not (self.is_ready(broker) and not self.is_cut(broker, pubend)):
                    beyond.setdefault(broker, {})[following] = None
        for broker in [broker for broker in self._useless_since if broker not in beyond]:
            del self._useless_since[broker]
        for broker in beyond:
            if broker not in self._useless_since:
                self._wait(self._useless_since, broker)
        found = dict.fromkeys([*self._tree.neighbours, *servers])
        waiting = list(self._tree.neighbours)
        for broker in waiting:  # which grows
            found[broker] = None
            if self._tree.distance(broker) < self._tree.reach:
                if broker not in self.links:
                    waiting += self._tree.away(broker) if self._is_over(self._away_since, broker) else ()
                elif self._is_over(self._useless_since, broker):
                    waiting += beyond.get(broker, ())
        kept = sorted(found, key=lambda broker: (broker not in toward, self._tree.distance(broker)))
        return dict.fromkeys(kept[: self._options.links_max])

    def _wait(self, since: dict[BrokerId, int], broker: BrokerId) -> None:
        since[broker] = self._state.now
        self._state.timers.set_earlier(("ring",), self._state.now + self._options.ring_wait)

    def _is_over(self, since: dict[BrokerId, int], broker: BrokerId) -> bool:
        """Whether something has lasted for as long as is waited for it; else it is looked at again when it has."""
        begun = since.get(broker)
        if begun is None:
            return False
        over = begun + self._options.ring_wait
        if self._state.now < over:
            self._state.timers.set_earlier(("ring",), over)
        return self._state.now >= over

    def _is_needless(self, broker: BrokerId) -> bool:
        """Whether a link is to be hung up here: both ends wish for it no more, and this one's name comes first."""
        said = self._heard.get(broker)
        return said is not None and not said[0].wants and broker not in self._wished and self._state.broker < broker

    # ----------------------------------------------------------------------------------------- status

    def say_status(self, reports: Mapping[BrokerId, bytes] | None = None) -> None:
        """Sends what says something new. `reports`: for whom there are some; then it is sent to everybody."""
        for broker in self.links:
            said = self._said.get(broker)
            now = self.ready, self.cut, broker in self._wished
            if reports is not None or said is None or (said.ready, said.cut, said.wants) != now:
                self._number += 1
                status = self._said[broker] = Status(self.life, self._number, *now, (reports or {}).get(broker, b""))
                self.links.send(broker, Private(STATUS, _encode(status)))

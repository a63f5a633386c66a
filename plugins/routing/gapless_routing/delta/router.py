"""The router at the seam: which part of it takes which fact, and which message."""

from __future__ import annotations

from collections.abc import Iterator

from gapless.core.gauges import Family, Gauge
from gapless.core.network.facts import BrokerId, Opened
from gapless.core.network.frames import Address, Message, Private
from gapless.core.network.seam import Effects, RouterContext
from gapless.core.stream.ticks import PubendId, ShbId
from gapless_routing.common.progress import ProgressTable
from gapless_routing.common.relay_router import PrivateHandlers, RelayRouter, TimerHandlers
from gapless_routing.delta.copies import REPORT
from gapless_routing.delta.interest import SideInterests
from gapless_routing.delta.options import options_of
from gapless_routing.delta.ring import BEAT, STATUS, Ring
from gapless_routing.delta.serving import SERVE, SERVED, UNSERVE, Serving, explained
from gapless_routing.delta.tree import Tree, check_map
from gapless_routing.delta.ways import NO_WAY, Ways

READY = Family("gapless_router_ready", "Whether it knows what all SHBs want; else it is bypassed where it can be.")


class DeltaRouter(RelayRouter):
    """A `Router` for a tree of single brokers, of which some next to each other may be away."""

    name = "delta"
    networks = "nodes"

    def __init__(self) -> None:
        super().__init__()
        self._tree: Tree
        self._ring: Ring
        self._ways: Ways
        self._interests: SideInterests
        self._streams: Serving
        self._has_changed = False
        """Whether anything has from which it follows who serves whom."""

    def start(self, now: int, context: RouterContext) -> Effects:
        """Dials the neighbours. Raises ConfigurationError when the map is no tree of single brokers."""
        options = options_of(context.config)
        check_map(context.network, context.broker, options.links_max)
        state = self._begin(now, context)
        self._tree = Tree(context.network, context.broker, options.reach)
        self._ring = Ring(state, self._tree, options)
        self._ways = Ways(state, self._tree, self._ring)
        self._links = self._ring.links
        self._progress = ProgressTable(state, self._links, self._next_hops)
        self._interests = SideInterests(state, self._tree, self._ring, options, self._on_heard, self._read)
        self._streams = Serving(state, self._tree, self._ring, self._interests, self._progress, options)
        self._connect(self)
        for part in (self._ring, self._interests, self._progress, self._streams):
            part.start()
        return self._effects()

    def gauges(self) -> Iterator[Gauge]:
        """The links and the cache, whether this broker is of use to others, and who serves it."""
        yield from super().gauges()
        yield READY.gauge(self._ring.ready)
        yield from self._streams.gauges()

    def explain(self, said: Private) -> str:
        """Who is to serve whom, for whoever reads a trace."""
        return explained(said)

    # The way to a certain broker (`Unicast`).

    def with_role(self, role: str) -> list[BrokerId]:
        """The brokers that have a role, in an order that is the same everywhere."""
        return self._tree.with_role(role)

    def is_known(self, broker: BrokerId) -> bool:
        """Whether a broker is on the map."""
        return broker in self._tree

    def has_way(self, to: BrokerId) -> bool:
        """Whether anybody on the way to a broker is live, as far as this one reaches."""
        return to in self._tree and bool(self._ring.on_way(to))

    def send_to(self, to: BrokerId, message: Message, sender: BrokerId | None, address: Address) -> None:
        """Sends a message one step on its way to a certain broker."""
        self._ways.send(to, message, sender, address)

    # How it is done.

    def _private_handlers(self) -> PrivateHandlers:
        return super()._private_handlers() | {
            STATUS: self._on_status,
            SERVE: self._streams.on_serve,
            SERVED: self._streams.on_served,
            UNSERVE: self._streams.on_unserve,
            REPORT: self._streams.copies.on_report,
            NO_WAY: self._ways.on_no_way,
        }

    def _timer_handlers(self) -> TimerHandlers:
        return super()._timer_handlers() | {
            "beat": self._beat,
            "ring": self._note_change,
            "copy": self._streams.copy,
        }

    def _is_there(self, broker: BrokerId) -> None:
        self._note_change()
        self._ring.link_up(broker)
        super()._is_there(broker)

    def _is_gone(self, broker: BrokerId) -> None:
        self._note_change()
        self._ring.link_down(broker)
        self._streams.on_link_down(broker)
        self._interests.on_link_down(broker)

    def _on_status(self, broker: BrokerId, data: bytes) -> None:
        before = self._ring.life_of(broker)
        reports = self._ring.on_status(broker, data)
        self._streams.copies.forget_lives_but(broker, self._ring.life_of(broker))
        if before not in (None, self._ring.life_of(broker)):
            self._streams.forget_services(broker)
            self._interests.forget_census(broker)
        if reports:
            self._streams.copies.on_report(broker, reports)

    def _beat(self) -> None:
        self._state.timers.set(("beat",), self._state.now + BEAT)
        self._note_change()
        self._ring.say_status(self._streams.beat())

    def _next_hops(self, pubend: PubendId, *, sideways: bool) -> list[BrokerId]:
        server = self._streams.toward(pubend)
        return [] if server is None else [server]

    def _on_private_message(self, peer: BrokerId, said: Private, address: Address) -> None:
        super()._on_private_message(peer, said, address)
        self._note_change()

    def _on_heard(self, shb: ShbId, direction: str) -> None:
        super()._on_heard(shb, direction)
        self._note_change()

    def pubend(self, now: int, opened: Opened) -> Effects:
        """A pubend of this node, as it is now."""
        self._note_change()
        return super().pubend(now, opened)

    def _effects(self) -> Effects:
        if self._has_changed:
            self._has_changed = False
            self._look_around()
        return super()._effects()

    def _note_change(self) -> None:
        """Something has changed that who serves whom may follow from."""
        self._has_changed = True

    def _look_around(self) -> None:
        """Who serves this broker now, what it can do for others, and which links it needs."""
        self._interests.look_around()
        self._streams.choose()
        ring = self._ring
        ring.ready = ring.ready or self._interests.is_ready
        ring.cut = self._streams.cut()
        ring.reconsider(self._streams.sources(), self._streams.servers())
        ring.say_status()

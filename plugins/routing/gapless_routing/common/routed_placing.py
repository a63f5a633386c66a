"""Openings and batches of publishers, on their way from broker to broker to the pubend's node and back.

Who asks and who submits are the parts that all routers share (`gapless_routing.common.placing`). What is added here is
the way: a message names the node that it is for and the node that it is from, and each broker sends it one step on.

No broker on the way knows which processes are at the two ends, so their lives take the place of links' incarnations. A
process that starts takes a number that is higher than that of the one before, which it has saved, and asks nothing
before its own is durable. The pubend's node takes nothing of a life below the highest that it has seen of a node: it
is of a process that is over. If the saved number was lost with the volume, and the clock was set back, the process is
told so by the answer, takes a higher number, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from gapless.core.network.facts import BrokerId, OpenRequest, Outcome, Pub, PubendMeta, Verdict
from gapless.core.network.frames import Address, Answer, Message
from gapless.core.stream.ticks import PubendId
from gapless.errors import RemoteProtocolError
from gapless.selectors.topics import topic_matches
from gapless_routing.common.link_table import rank
from gapless_routing.common.notices import Notices
from gapless_routing.common.placing import ClientSide, Placement, RequestIntake
from gapless_routing.common.router_state import RouterState, new_life

ROUTE = 2
"""How many places of an address the way takes: to whom, and from whom."""


class Unicast(Protocol):
    """The way to a certain broker, as a router knows it."""

    def with_role(self, role: str) -> list[BrokerId]:
        """Returns the brokers that have a role, in an order that is the same everywhere."""

    def is_known(self, broker: BrokerId) -> bool:
        """Whether a broker is on the map."""

    def has_way(self, to: BrokerId) -> bool:
        """Whether there is a way to a certain broker, as far as this one knows."""

    def send_to(self, to: BrokerId, message: Message, sender: BrokerId | None, address: Address) -> None:
        """Sends a message one step on its way to a certain broker. `sender` brought it here; None: it is from here."""


class PlacingWay:
    """How the parts that place something reach other brokers: `gapless_routing.common.placing.PlacingNetwork`."""

    def __init__(self, state: RouterState, way: Unicast) -> None:
        self._state = state
        self._way = way
        self.arrived: list[tuple[BrokerId | None, BrokerId, OpenRequest | Pub | Answer, Address]] = []
        """What is for this very broker: who brought it (None: itself), from whom it is, and the address without the
        way."""
        self.lives: dict[BrokerId, int] = {}
        """The highest life that the pubends here have seen of each broker."""

    def with_role(self, role: str) -> list[BrokerId]:
        """The brokers that have a role."""
        return self._way.with_role(role)

    def incarnation(self, broker: BrokerId) -> int | None:
        """The latest life of a broker names the process that is there."""
        return self.lives.get(broker, 0) if self._way.is_known(broker) else None

    def life_for(self, broker: BrokerId) -> int:
        """This router's life."""
        return self._state.life

    def send(self, broker: BrokerId, message: OpenRequest | Pub | Answer, address: Address) -> None:
        """Sends a message on its way."""
        self.route(None, message, (broker, self._state.broker, *address))

    def has_way(self, broker: BrokerId) -> bool:
        """Whether there is a way to it."""
        return broker == self._state.broker or self._way.has_way(broker)

    def route(self, sender: BrokerId | None, message: OpenRequest | Pub | Answer, address: Address) -> None:
        """A message is here: it is for this broker, or goes one step on."""
        to, source = str(address[0]), str(address[1])
        if not self._way.is_known(source):  # the broker that it is from has another map, and could not be answered
            return
        if to == self._state.broker:
            self.arrived.append((sender, source, message, address[ROUTE:]))
            return
        self._way.send_to(to, message, sender, address)


class RoutedClientSide(ClientSide):
    """The questions of this node's clients."""

    def __init__(
        self,
        state: RouterState,
        way: PlacingWay,
        number: int,
        all_places: Callable[[BrokerId], list[PubendMeta] | None],
        renew_life: Callable[[], None],
    ) -> None:
        """`all_places`: returns the pubends of a broker that take new publishers; None if it may have others as well.

        `renew_life` is called when this router has another life. `number`: as of `ClientSide`.
        """
        super().__init__(state, way, number)
        self._all_places = all_places
        self._renew_life = renew_life
        self._router = state

    def on_answer(self, broker: BrokerId, answer: Answer, address: Address) -> None:
        """The owner's answer; or it has seen a higher life of this broker, and takes nothing of this one."""
        life, _, _, taken = (cast("int", part) for part in address)
        if taken > 1:
            if life == self._router.life <= taken:
                self._router.life = new_life(self._router.broker, self._router.seed, taken)
                self._renew_life()
                self._router.save_life()
            return
        super().on_answer(broker, answer, address)

    def _candidates(self, request: OpenRequest) -> list[BrokerId]:
        """The brokers for a publisher that is nowhere yet, in an order that stays the same as long as the map does."""
        hosts = self._network.with_role("phb")
        fitting = [host for host in hosts if self._may_take(host, request)]
        return sorted(fitting or hosts, key=lambda host: rank(request.publisher, host), reverse=True)

    def _may_take(self, host: BrokerId, request: OpenRequest) -> bool:
        """Whether a pubend of a broker may take a publisher with its topic.

        As long as anything of that broker may be unknown here, it may. Passed over in vain, the name would be opened at
        the next one, which knows nothing of what it has logged.
        """
        metas = self._all_places(host)
        return metas is None or any(_takes(meta, request) for meta in metas)

    def on_life_durable(self) -> None:
        """What was placed in this life so far is asked now, and what an earlier one asked again."""
        for number, question in list(self._questions.items()):
            self._send(number, question)

    def _send(self, number: int, question: Placement) -> None:
        """Sends a question, if the next life is certain to surpass this one.

        Otherwise an opening of this one, on its way still, might pass for one of the next, and fence what that opens.
        """
        if self._router.life_is_durable:
            super()._send(number, question)


class RoutedIntake(RequestIntake):
    """What the clients of all nodes ask of the pubends of this one."""

    def __init__(self, state: RouterState, way: PlacingWay, hosted: Callable[[], list[PubendId]]) -> None:
        super().__init__(state, way, ())
        self._hosted = hosted
        self._lives = way.lives

    def on_request(self, broker: BrokerId, message: OpenRequest | Pub, address: Address) -> None:
        """An opening or a batch; nothing of a life that is over."""
        ours, theirs, number = (cast("int", part) for part in address[:3])
        latest = self._lives.get(broker, 0)
        if theirs < latest:
            refused = Outcome(Verdict.RETRY, "a later process of this broker was seen")
            self._network.send(
                broker, Answer(message.pubend, refused), (theirs, number, self._network.life_for(broker), latest)
            )
            return
        if theirs > latest and ours == self._network.life_for(broker):
            # What an earlier life asked goes with it: this one may use the same numbers for other questions.
            self._origins.pop((broker, latest), None)
            self._lives[broker] = theirs
        self._pubends = self._hosted()
        super().on_request(broker, message, address)


class RoutedPlacing:
    """All that has to do with placing: the way, the questions of the clients here, and those of others to the pubends.

    Everything that a router is told may place something at its own pubends, so each call of it ends with `settle`.
    """

    def __init__(
        self,
        state: RouterState,
        way: Unicast,
        notices: Notices,
        refuse: Callable[[BrokerId, RemoteProtocolError], None],
    ) -> None:
        """`refuse` is called when an answer that a broker has brought makes no sense."""
        self.way = PlacingWay(state, way)
        self.entry = RoutedClientSide(state, self.way, state.now, notices.all_places, notices.renew_life)
        self.requests = RoutedIntake(state, self.way, lambda: notices.hosted)
        self._notices = notices
        self._refuse = refuse

    def on_lives(self) -> None:
        """A notice was heard: there may be another process at a pubend's broker, which has to be asked anew."""
        for broker, life in self._notices.lives.items():
            self.entry.on_life(broker, life)

    def settle(self) -> None:
        """Takes in what was placed here for this very broker."""
        arrived = self.way.arrived
        while arrived:
            waiting = arrived.copy()
            arrived.clear()
            for peer, source, message, address in waiting:
                if isinstance(message, Answer):
                    self._take_answer(peer, source, message, address)
                else:
                    self.requests.on_request(source, message, address)

    def _take_answer(self, peer: BrokerId | None, source: BrokerId, answer: Answer, address: Address) -> None:
        try:
            self.entry.on_answer(source, answer, address)
        except RemoteProtocolError as error:
            if peer is None:  # this broker's own pubend has answered another question
                raise AssertionError(str(error)) from error
            self._refuse(peer, error)


def _takes(meta: PubendMeta, request: OpenRequest) -> bool:
    """Whether a pubend may take a new publisher: by its name, and by its topic, if it has only one."""
    is_named = any(
        request.publisher.startswith(name[:-1]) if name.endswith("*") else request.publisher == name
        for name in meta.publishers
    )
    carries = request.topic is None or any(topic_matches(topic, request.topic) for topic in meta.topics)
    return is_named and carries

"""Listening in on a world for people: what travels between its parts, and what its applications do.

Nothing of a run changes by it: what is heard is added to the lines of the trace, and not to its hash. A
line is where something arrived, with where it came from as its `peer`; what was lost is a line of the kind
LOST where it left, with where it should have gone as its `peer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gapless.core.ports import Append, Chop, Put
from gapless_sim.message_text import Conversation, Told, tell_frame, tell_item
from gapless_sim.naming import Names, count_of
from gapless_sim.observing import Oracle
from gapless_sim.trace import Line

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.effects import Attached
    from gapless.core.ports import Operation
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.errors import GaplessError
    from gapless_sim.broker import SimBroker
    from gapless_sim.consumer import Consumer
    from gapless_sim.links import ClientLink
    from gapless_sim.producer import Letter, Producer
    from gapless_sim.world import World

LOST = "lost"
SLOW = 500_000_000
"""What was longer on its way says so."""


def listen(world: World, names: Names | None = None) -> None:
    """From now on the trace of this world, in which nothing has happened yet, has lines of everything."""
    ear = _Ear(world, names or Names())
    world.observe.add(ear)
    for broker in world.brokers.values():
        ear.attend(broker)
    ear.attend_network()


class _Ear(Oracle):
    """Hears everything, objects to nothing."""

    def __init__(self, world: World, names: Names) -> None:
        super().__init__(world)
        self.names = names
        self._peers: dict[tuple[str, int], str] = {}
        self._on_their_way: dict[tuple[str, str, bytes], list[int]] = {}

    def _line(self, lane: str, told: Told, peer: str = "") -> None:
        self.world.trace.lines.append(Line(self.world.now, lane, told.kind, told.text, peer))

    def _arrived(self, source: str, target: str, told: Told, payload: bytes) -> None:
        sent = self._on_their_way.get((source, target, payload), [])
        waited = self.world.now - sent.pop(0) if sent else 0
        late = f" [sent {waited / 1e9:.1f} s ago]" if waited > SLOW else ""
        self._line(target, Told(told.kind, told.text + late), source)

    def _left(self, source: str, target: str, payload: bytes) -> None:
        self._on_their_way.setdefault((source, target, payload), []).append(self.world.now)

    # Clients' links.

    def attend(self, broker: SimBroker) -> None:
        """Hears what clients and other brokers say to this broker, and what it says to its clients."""
        accept, on_link, on_frame = broker.accept, broker.on_broker_link, broker.on_broker_frame

        def accept_and_attend(link: ClientLink) -> None:
            accept(link)
            talk = Conversation(self.names)
            link.upward.on_payloads = self._attended(link, talk.from_client, link.upward.on_payloads, up=True)
            link.downward.on_payloads = self._attended(link, talk.from_broker, link.downward.on_payloads, up=False)

        def hear_link(number: int, peer: SimBroker) -> None:
            self._peers[broker.name, number] = peer.name
            self._line(broker.name, Told("link up", f"a link to {peer.name}"))
            on_link(number, peer)

        def hear_frame(number: int, frame: bytes) -> None:
            source = self._peers[broker.name, number]
            self._arrived(source, broker.name, tell_frame(frame, self.names), frame)
            on_frame(number, frame)

        broker.accept = accept_and_attend  # type: ignore[method-assign]
        broker.on_broker_link = hear_link  # type: ignore[method-assign]
        broker.on_broker_frame = hear_frame  # type: ignore[method-assign]

    def _attended(
        self, link: ClientLink, tell: Callable[[bytes], Told], hear: Callable[[Sequence[bytes]], None], *, up: bool
    ) -> Callable[[Sequence[bytes]], None]:
        source, target = link.client.name, link.broker.name
        if not up:
            source, target = target, source

        def attended(payloads: Sequence[bytes]) -> None:
            for payload in payloads:
                self._line(target, tell(payload), source)
            hear(payloads)

        return attended

    # Links between brokers.

    def attend_network(self) -> None:
        """Hears what is lost on its way."""
        network = self.world.network
        to_broker = network.to_broker

        def send(source: SimBroker, number: int, frame: bytes) -> None:
            target = self._peers.get((source.name, number), "")
            lost = self.world.probes["net.lost"]
            to_broker(source, number, frame)
            if self.world.probes["net.lost"] > lost or network.is_cut(source.name, target):
                self._line(source.name, Told(LOST, tell_frame(frame, self.names).text), target)
            else:
                self._left(source.name, target, frame)

        network.to_broker = send  # type: ignore[method-assign]

    # Brokers.

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A broker has written a batch."""
        self._line(broker.name, Told("writes", "; ".join(dict.fromkeys(map(_written, operations)))))

    # Applications.

    def published(self, producer: Producer, letters: Sequence[Letter]) -> None:
        """An application begins to publish."""
        events = ", ".join(_letter(letter) for letter in letters[:3]) + (", …" if len(letters) > 3 else "")
        self._line(producer.client.name, Told("publishes", f"{producer.name} publishes {events}"))

    def not_published(self, producer: Producer, letters: Sequence[Letter], error: GaplessError) -> None:
        """A batch gets no receipt."""
        self._line(producer.client.name, Told("not published", f"{count_of(len(letters), 'event')}: {error}"))

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[str, int]) -> None:
        """A subscription is there."""
        new = " for the first time" if result.created else ""
        text = f"{consumer.row.name} is attached{new} behind {self.names.positions(begins)}"
        self._line(consumer.client.name, Told("attached", text))

    def told(self, consumer: Consumer, item: Item) -> None:
        """An application takes something."""
        told = tell_item(item, self.names)
        self._line(consumer.client.name, Told(told.kind, f"{consumer.row.name} takes {told.text}"))

    def committed(self, consumer: Consumer, token: CheckpointToken) -> None:
        """Effects and token are committed together."""
        text = f"{consumer.row.name} commits the token {self.names.positions(token.ticks)}"
        self._line(consumer.client.name, Told("commits", text))

    def lost_subscription(self, consumer: Consumer, error: GaplessError) -> None:
        """A subscription ended with an error."""
        self._line(consumer.client.name, Told("subscription over", f"{consumer.row.name}: {error}"))


def _written(operation: Operation) -> str:
    """What an operation changes, in the words of the roles."""
    if isinstance(operation, (Append, Put, Chop)):
        stream = operation.log if isinstance(operation, Append) else operation.stream
        role, _, pubend = stream.partition("@")[0].replace(".", "/").partition("/")
        what = {"phb": f"the log of {pubend}", "pfs": f"the PFS of {pubend}"}.get(role, stream)
        return f"chops {what}" if isinstance(operation, Chop) else what
    return operation.table.replace(".", "/").rpartition("/")[2]


def _letter(letter: Letter) -> str:
    properties = " ".join(f"{name}={value}" for name, value in letter.properties.items())
    return f"#{letter.key} {properties}".rstrip()

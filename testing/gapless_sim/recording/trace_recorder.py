"""Records the trace that people read: what travels between the parts of a world, and what its applications do.

A run does not change by it: the lines are added to the trace, and not to its hash. The lane of a line is where
something arrived, and its `peer` is where that came from. What was lost has a line of the kind LOST: its lane is where
it left, and its `peer` where it should have gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gapless.core.ports import Append, Chop, Put
from gapless_sim.recording.message_text import Conversation, MessageText, frame_text, item_text
from gapless_sim.recording.observation import Oracle
from gapless_sim.recording.short_names import Names, count_of
from gapless_sim.recording.trace import Line

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.ports import Operation
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.errors import GaplessError
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.links import ClientLink
    from gapless_sim.world.producer import Producer, Publication
    from gapless_sim.world.world import World

LOST = "lost"
SLOW = 500_000_000
"""What was longer on its way says so."""


def record_trace(world: World, names: Names | None = None) -> None:
    """From now on the trace of this world, in which nothing has happened yet, has lines of everything."""
    recorder = _Recorder(world, names or Names())
    world.observe.add(recorder)
    for broker in world.brokers.values():
        recorder.attend(broker)
    recorder.attend_network()


class _Recorder(Oracle):
    """Writes a line for everything, and objects to nothing."""

    def __init__(self, world: World, names: Names) -> None:
        super().__init__(world)
        self.names = names
        self._peers: dict[tuple[str, int], str] = {}
        self._on_their_way: dict[tuple[str, str, bytes], list[int]] = {}

    def _line(self, lane: str, text: MessageText, peer: str = "") -> None:
        self.world.trace.lines.append(Line(self.world.now, lane, text.kind, text.text, peer))

    def _arrived(self, source: str, target: str, text: MessageText, payload: bytes) -> None:
        sent = self._on_their_way.get((source, target, payload), [])
        waited = self.world.now - sent.pop(0) if sent else 0
        late = f" [sent {waited / 1e9:.1f} s ago]" if waited > SLOW else ""
        self._line(target, MessageText(text.kind, text.text + late), source)

    def _frame_text(self, source: str, frame: bytes) -> MessageText:
        return frame_text(frame, self.names, partial(self.world.seam.explain, source))

    def _left(self, source: str, target: str, payload: bytes) -> None:
        self._on_their_way.setdefault((source, target, payload), []).append(self.world.now)

    # Clients' links.

    def attend(self, broker: SimBroker) -> None:
        """Records what clients and other brokers send to this broker, and what it sends to its clients."""
        accept, on_link, on_frame = broker.accept, broker.on_broker_link, broker.on_broker_frame

        def accept_and_attend(link: ClientLink) -> None:
            accept(link)
            talk = Conversation(self.names)
            link.upward.on_payloads = self._attended(link, talk.from_client, link.upward.on_payloads, up=True)
            link.downward.on_payloads = self._attended(link, talk.from_broker, link.downward.on_payloads, up=False)

        def hear_link(number: int, peer: str, roles: frozenset[str], incarnation: int) -> None:
            self._peers[broker.name, number] = peer
            self._line(broker.name, MessageText("link up", f"a link to {peer}"))
            on_link(number, peer, roles, incarnation)

        def hear_frame(number: int, frame: bytes) -> None:
            source = self._peers[broker.name, number]
            self._arrived(source, broker.name, self._frame_text(source, frame), frame)
            on_frame(number, frame)

        broker.accept = accept_and_attend  # type: ignore[method-assign]
        broker.on_broker_link = hear_link  # type: ignore[method-assign]
        broker.on_broker_frame = hear_frame  # type: ignore[method-assign]

    def _attended(
        self,
        link: ClientLink,
        tell: Callable[[bytes], MessageText],
        hear: Callable[[Sequence[bytes]], None],
        *,
        up: bool,
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
        """Records what is lost on its way."""
        network = self.world.network
        to_broker = network.to_broker

        def send(source: SimBroker, number: int, frame: bytes, *, urgent: bool) -> None:
            target = self._peers.get((source.name, number), "")
            lost = self.world.hits["net.lost"]
            to_broker(source, number, frame, urgent=urgent)
            if self.world.hits["net.lost"] > lost or network.is_cut(source.name, target):
                self._line(source.name, MessageText(LOST, self._frame_text(source.name, frame).text), target)
            else:
                self._left(source.name, target, frame)

        network.to_broker = send  # type: ignore[method-assign]

    # Brokers.

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A broker has written a batch."""
        self._line(broker.name, MessageText("writes", "; ".join(dict.fromkeys(map(_written, operations)))))

    # Applications.

    def published(self, producer: Producer, publications: Sequence[Publication]) -> None:
        """An application begins to publish."""
        events = ", ".join(_publication(publication) for publication in publications[:3]) + (
            ", …" if len(publications) > 3 else ""
        )
        self._line(producer.client.name, MessageText("publishes", f"{producer.name} publishes {events}"))

    def not_published(self, producer: Producer, publications: Sequence[Publication], error: GaplessError) -> None:
        """A batch gets no receipt."""
        self._line(
            producer.client.name, MessageText("not published", f"{count_of(len(publications), 'event')}: {error}")
        )

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[str, int]) -> None:
        """A subscription is there."""
        new = " for the first time" if result.created else ""
        text = f"{consumer.row.name} is attached{new} behind {self.names.positions(begins)}"
        self._line(consumer.client.name, MessageText("attached", text))

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """An application takes something."""
        text = item_text(item, self.names)
        self._line(consumer.client.name, MessageText(text.kind, f"{consumer.row.name} takes {text.text}"))

    def committed(self, consumer: Consumer, token: CheckpointToken) -> None:
        """Effects and token are committed together."""
        text = f"{consumer.row.name} commits the token {self.names.positions(token.ticks)}"
        self._line(consumer.client.name, MessageText("commits", text))

    def lost_subscription(self, consumer: Consumer, error: GaplessError) -> None:
        """A subscription ended with an error."""
        self._line(consumer.client.name, MessageText("subscription over", f"{consumer.row.name}: {error}"))


def _written(operation: Operation) -> str:
    """What an operation changes, in the words of the roles."""
    if isinstance(operation, (Append, Put, Chop)):
        stream = operation.log if isinstance(operation, Append) else operation.stream
        role, _, pubend = stream.partition("@")[0].replace(".", "/").partition("/")
        what = {"phb": f"the log of {pubend}", "pfs": f"the PFS of {pubend}"}.get(role, stream)
        return f"chops {what}" if isinstance(operation, Chop) else what
    return operation.table.replace(".", "/").rpartition("/")[2]


def _publication(publication: Publication) -> str:
    properties = " ".join(f"{name}={value}" for name, value in publication.properties.items())
    return f"#{publication.key} {properties}".rstrip()

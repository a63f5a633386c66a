"""What the parts of an SHB share: its subscriptions, its pubends, its consumers, and the way out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from gapless.core.effects import EndSession, Operation, Tell, Write
from gapless.core.messages import ServerMessage, Silence, Subscribed
from gapless.core.routing import Announce, Interest
from gapless.core.ticks import PubendId, ShbId, Tick
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.checkpoint import pubend_row
from gapless_shb.core.constream import Constream, Surroundings
from gapless_shb.core.consumers import Channel, Consumer
from gapless_shb.core.subscriptions import Registry, Subscription


class Hosting:
    """The state of an SHB, and what every part of it may do with it."""

    def __init__(self, shb: ShbId, network: str, secret: bytes, registry: Registry) -> None:
        self.network = network
        self.secret = secret
        self.registry = registry
        self.streams: dict[PubendId, Constream] = {}
        self.effects: list[object] = []
        self._unflushed: list[Channel] = []
        matcher = BatchMatcher()
        for subscription in registry:
            matcher.add(subscription.sid, subscription.filter)
        self.around = Surroundings(shb, matcher, registry.get, self.effects.append)
        self._announcing: dict[int, Interest] = {}
        self._announced = 0
        """The highest version that is durable in this life; 0 until `started`."""
        self._dropping: dict[int, Subscription] = {}

    # -------------------------------------------------------------------------------------- the way out

    def tell(self, session: int, message: ServerMessage) -> None:
        """Sends a message to a session, behind everything sent to it before."""
        channel = self.around.channels.get(session)
        if channel is not None:
            channel.flush()
        self.effects.append(Tell(session, message))

    def write(self, operations: Sequence[Operation], cookie: Hashable = None) -> None:
        """Asks for an atomic write."""
        self.effects.append(Write(tuple(operations), cookie))

    def write_interest(
        self,
        operations: Sequence[Operation],
        *,
        cookie: Hashable,
        add: Subscription | None = None,
        drop: Subscription | None = None,
    ) -> None:
        """A write that makes a new version of the interest durable; then it is announced, then `cookie` acted on."""
        version = self.registry.version
        added = {} if add is None else {add.sid: add.filter}
        dropped = frozenset(() if drop is None else (drop.sid,))
        self._announcing[version] = Interest(self.around.shb, version - 1, version, added, dropped)
        if drop is not None:
            self._dropping[version] = drop
        self.write(operations, ("interest", version, cookie))

    def write_start(self) -> None:
        """The first write of a life: a version of its own, because what was not durable is gone."""
        self.write(self.registry.next_version(), ("started", self.registry.version))

    def write_holds(self, stream: Constream, *with_it: Operation) -> None:
        """A pubend's row of holds may be sent under its version only when that version is durable."""
        self.write([pubend_row(stream), *with_it], ("holds", stream.pubend, stream.holds.version))

    def announce(self, version: int) -> None:
        """This version is durable: the network may know of it."""
        self._announced = max(self._announced, version)
        self._dropping.pop(version, None)
        self.effects.append(Announce(self._announcing.pop(version)))

    def started(self, version: int) -> None:
        """The version of this life is durable."""
        self._announced = max(self._announced, version)
        self.announce_in_full()

    def announce_in_full(self) -> None:
        """Says the whole interest as it is durable, without the changes that are being written."""
        if not self._announced:
            return
        subscriptions = [*self.registry, *self._dropping.values()]
        filters = {s.sid: s.filter for s in subscriptions if s.version <= self._announced}
        self.effects.append(Announce(Interest(self.around.shb, 0, self._announced, filters, full=True)))

    def announce_version(self) -> None:
        """Repeats the version, so that a router that lost a change notices and asks."""
        if not self._announced:
            return
        self.effects.append(Announce(Interest(self.around.shb, self._announced, self._announced, {})))

    def take_effects(self) -> list[object]:
        """Everything asked for since the last call, in order."""
        while self._unflushed:
            self._unflushed.pop().flush()
        taken = list(self.effects)
        self.effects.clear()
        return taken

    # -------------------------------------------------------------------------------------- consumers

    def channel(self, session: int) -> Channel:
        """The session's channel."""
        channel = self.around.channels.get(session)
        if channel is None:
            channel = Channel(session, self.effects.append, self._unflushed)
            self.around.channels[session] = channel
        return channel

    def attach(self, consumer: Consumer, at: Mapping[PubendId, Tick], answer: Subscribed, now: int, wall: int) -> None:
        """Answers the client, then serves the consumer from these positions on."""
        self.around.consumers[consumer.sid] = consumer
        consumer.channel.consumers[consumer.sid] = consumer
        self.tell(consumer.channel.session, answer)
        for pubend, tick in at.items():
            self.streams[pubend].attach(consumer, tick, now, wall)

    def attach_to_new(self, stream: Constream, now: int, wall: int) -> None:
        """A pubend was discovered: every consumer begins there where its subscription does."""
        for consumer in list(self.around.consumers.values()):
            start = stream.positions[consumer.sid].start
            consumer.channel.flush()
            number = consumer.channel.number(stream.pubend)
            self.effects.append(Tell(consumer.channel.session, Silence(number, start, [consumer.sid])))
            stream.attach(consumer, start, now, wall)

    def detach(self, sid: int) -> Consumer | None:
        """Ends the consumption of a subscription; returns the consumer that had it."""
        consumer = self.around.consumers.pop(sid, None)
        if consumer is None:
            return None
        consumer.channel.consumers.pop(sid, None)
        for stream in self.streams.values():
            stream.detach(sid)
        return consumer

    def end_session(self, session: int, reason: str) -> None:
        """Closes a client's session."""
        self.effects.append(EndSession(session, reason))

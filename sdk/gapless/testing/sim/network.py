"""The network: links between clients and brokers, and between brokers, and everything that goes wrong on them.

A client's link is a stream: what arrives is a prefix of what was sent, in order, until the link is reset.
It may be slow, cut in one direction for a while, chopped into single bytes, or garbled. A link between
brokers is a datagram link unless the router asks for streams: each frame may be lost, repeated (at once or
much later) and overtaken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from gapless.core.framing import FrameDecoder, encode_frame
from gapless.core.sessions.limits import HELLO_BYTES_MAX
from gapless.errors import RemoteProtocolError

if TYPE_CHECKING:
    from gapless.spi import LinkHandler
    from gapless.testing.sim.application import SimClient
    from gapless.testing.sim.broker import SimBroker
    from gapless.testing.sim.world import World

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
LOW_WATER, HIGH_WATER = 64 << 10, 256 << 10
OLD_FRAMES = 32
"""So many payloads of earlier sessions are remembered, to turn up in a later one."""


def _whole(payload: Payload) -> bytes:
    return payload if isinstance(payload, bytes) else b"".join(payload)


class Pipe:
    """One direction of a client's link."""

    def __init__(self, link: ClientLink, source: str, target: str, *, rate: int, bytewise: bool) -> None:
        """`rate` is bytes a second, 0 for no limit; `bytewise`: through the real framing, in pieces."""
        self._link = link
        self._world = link.world
        self.source = source
        self.target = target
        self.rate = rate
        self.pending = 0
        self.limit = HELLO_BYTES_MAX
        self.on_payloads: Callable[[Sequence[bytes]], None] = lambda _: None
        self.on_drained: Callable[[], None] = lambda: None
        self._decoder = FrameDecoder(HELLO_BYTES_MAX) if bytewise else None
        self.busy_until = 0
        """When a slow link will have sent all that it has."""
        self._last_arrival = 0
        self._held: deque[list[bytes]] = deque()
        """What waits until the way is free, or the reader reads again."""
        self._above = False
        self.paused = False

    def send(self, payloads: Sequence[Payload]) -> None:
        """Puts payloads on their way."""
        whole = [_whole(payload) for payload in payloads]
        self._remember(whole)
        network = self._link.network
        if self._held or network.is_cut(self.source, self.target):
            self._held.append(whole)
            self._grow(sum(map(len, whole)))
            return
        self._depart(whole)

    def flush(self) -> None:
        """The way is free again, or the reader reads: what was held goes on."""
        while self._held and not self._link.closed and not self._link.network.is_cut(self.source, self.target):
            whole = self._held.popleft()
            self._shrink(sum(map(len, whole)))
            self._depart(whole)

    def raise_limit(self, limit: int) -> None:
        """Frames up to this size are accepted from now on."""
        self.limit = limit
        if self._decoder is not None:
            self._decoder.limit = limit

    def _depart(self, whole: list[bytes]) -> None:
        world, network = self._world, self._link.network
        leave = world.now
        if self.rate:
            size = sum(map(len, whole))
            leave = max(leave, self.busy_until) + size * SECOND // self.rate
            self.busy_until = leave
            self._grow(size)
            world.at(leave, self.source, "left", self._shrink, size, life=self._link.life)
        arrival = max(self._last_arrival, leave + network.latency())
        self._last_arrival = arrival
        if self._decoder is None:
            digest = 0
            for payload in whole:
                digest = crc32c_extend(digest, payload)
            world.at(arrival, self.target, "frames", self._arrive, whole, life=self._link.life, digest=digest)
        else:
            self._depart_bytewise(whole, arrival)

    def _depart_bytewise(self, whole: list[bytes], arrival: int) -> None:
        network = self._link.network
        data = b"".join(map(encode_frame, whole))
        if network.choices.chance(network.faults.garble):
            place = network.choices.draw(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << network.choices.draw(8)]) + data[place + 1 :]
            self._world.probe("net.garbled")
        while data:
            size = 1 + network.choices.draw(min(len(data), 1 << (2 * network.choices.draw(7))))
            piece, data = data[:size], data[size:]
            self._world.at(arrival, self.target, "bytes", self._arrive_bytes, piece, life=self._link.life)
            arrival += 1
        self._last_arrival = arrival

    def _arrive_bytes(self, piece: bytes) -> None:
        assert self._decoder is not None
        try:
            payloads = self._decoder.feed(piece)
        except RemoteProtocolError as error:
            self._link.reset(str(error))
            return
        if payloads:
            self._arrive(payloads)

    def _arrive(self, payloads: list[bytes]) -> None:
        if self.paused:
            self._held.append(payloads)
            return
        if max(map(len, payloads)) > self.limit:
            self._link.reset("a frame is too long")
            return
        self.on_payloads(payloads)

    def inject(self, payloads: list[bytes]) -> None:
        """Something arrives that was not sent on this link, but never as the very first."""
        if not self._last_arrival or self._last_arrival >= self._world.now:
            later = self._world.now + SECOND
            self._world.at(later, self.target, "stale", self.inject, payloads, life=self._link.life)
            return
        self._arrive([payload for payload in payloads if len(payload) <= self.limit] or [payloads[0][: self.limit]])

    def resume(self) -> None:
        """The reader reads again."""
        self.paused = False
        held, self._held = self._held, deque()
        for payloads in held:
            self._arrive(payloads)

    def _grow(self, size: int) -> None:
        self.pending += size
        self._above = self._above or self.pending > HIGH_WATER

    def _shrink(self, size: int) -> None:
        self.pending -= size
        if self._above and self.pending <= LOW_WATER:
            self._above = False
            self.on_drained()

    def _remember(self, whole: list[bytes]) -> None:
        old = self._link.old_frames(self.source)
        for payload in whole:
            if payload[:8].strip(b"\0"):  # of a session
                old.append(payload)


class ClientLink:
    """A client's connection to a broker. The broker's engine has it as its `Link`."""

    secure = False

    def __init__(self, network: Network, serial: int, client: SimClient, number: int, broker: SimBroker) -> None:
        self.network = network
        self.serial = serial
        self.world = network.world
        self.client = client
        self.number = number
        self.broker = broker
        self.life = network.world.new_life()
        self.closed = False
        self.peer = f"{client.name}#{number}"
        self.client_life = client.life
        self.broker_life = broker.life
        choices, faults = network.choices, network.faults
        bytewise = choices.chance(faults.bytewise)
        slow = faults.slow_rate if choices.chance(faults.slow) else 0
        self.upward = Pipe(self, client.name, broker.name, rate=0, bytewise=bytewise)
        self.downward = Pipe(self, broker.name, client.name, rate=slow, bytewise=bytewise)
        self.handler: LinkHandler | None = None

    # The broker's end.

    @property
    def pending(self) -> int:
        """Bytes that have not left the broker."""
        return self.downward.pending

    def send(self, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
        """Sends to the client."""
        self.broker.effect("send")
        if not self.closed:
            self.downward.send(payloads)

    def raise_limit(self, limit: int) -> None:
        """The broker accepts longer frames."""
        self.upward.raise_limit(limit)

    def pause(self) -> None:
        """The broker does not read."""
        self.upward.paused = True

    def resume(self) -> None:
        """The broker reads again."""
        self.upward.resume()

    def close(self, reason: str = "") -> None:
        """The broker closes: what it sent still arrives, then the client's end is closed."""
        if self.closed:
            return
        self.closed = True
        self.network.forget(self)
        arrival = self.world.now + 2 * self.network.latency()
        self.world.at(arrival, self.client.name, "closed", self._client_hears, reason, life=self.client_life)
        if self.handler is not None:
            self.world.at(
                self.world.now, self.broker.name, "closed", self.handler.on_closed, reason, life=self.broker_life
            )

    # The client's end.

    def hangup(self) -> None:
        """The client closes: what it sent still arrives."""
        if self.closed:
            return
        self.closed = True
        self.network.forget(self)
        arrival = max(self.world.now + self.network.latency(), self.upward._last_arrival + 1)  # noqa: SLF001 - its own pipe
        self.world.at(arrival, self.broker.name, "closed", self._broker_hears, "", life=self.broker_life)

    # Faults.

    def reset(self, reason: str) -> None:
        """The connection breaks: each side hears of it in its own time, and nothing on its way arrives."""
        if self.closed:
            return
        self.closed = True
        self.life.over = True
        self.network.forget(self)
        world, latency = self.world, self.network.latency
        world.at(world.now + latency(), self.client.name, "reset", self._client_hears, reason, life=self.client_life)
        world.at(world.now + latency(), self.broker.name, "reset", self._broker_hears, reason, life=self.broker_life)

    def old_frames(self, source: str) -> deque[bytes]:
        """What that side said in earlier sessions of the same pair."""
        return self.network.old_frames(self.client.name, self.broker.name, source)

    def _client_hears(self, reason: str) -> None:
        self.client.on_link_down(self.number, reason)

    def _broker_hears(self, reason: str) -> None:
        self.life.over = True
        if self.handler is not None:
            self.handler.on_closed(reason)


class BrokerLink:
    """A link between two brokers: a number at each end."""

    def __init__(self, one: SimBroker, other: SimBroker) -> None:
        self.ends = (one, other)
        self.numbers = (one.next_link(), other.next_link())
        self.lives = (one.life, other.life)
        self.up = True
        self.last_arrival = [0, 0]

    def other_end(self, broker: SimBroker) -> int:
        """The index of the end that is not this broker's."""
        return 1 if self.ends[0] is broker else 0


class Network:
    """All links, and what is cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults = world.options.network
        self.choices = world.choices.stream("network")
        self.calm = False
        """Whether nothing goes wrong any more."""
        self.client_links: dict[int, ClientLink] = {}
        self._serial = 0
        self._cuts: dict[tuple[str, str], int] = {}
        self._broker_links: dict[tuple[str, str], BrokerLink] = {}
        self._by_number: dict[tuple[str, int], BrokerLink] = {}
        self._wishes: dict[tuple[str, str], None] = {}
        self._old: dict[tuple[str, str, str], deque[bytes]] = {}

    def latency(self) -> int:
        """How long something is on its way."""
        return self.choices.delay(50 * MICROSECOND, self.faults.delay)

    # Cuts.

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one to the other just now."""
        return bool(self._cuts) and (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets through in this direction."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1
        self.world.note("world", "cut", f"{source} can not reach {target}")

    def heal(self, source: str, target: str) -> None:
        """The way is free again, as far as this cut is concerned."""
        count = self._cuts.get((source, target), 0)
        if count > 1:
            self._cuts[source, target] = count - 1
            return
        if self._cuts.pop((source, target), None) is None:
            return
        self.world.note("world", "heal", f"{source} reaches {target} again")
        for link in list(self.client_links.values()):
            for pipe in (link.upward, link.downward):
                if (pipe.source, pipe.target) == (source, target):
                    pipe.flush()

    def heal_all(self) -> None:
        """Every way is free."""
        for source, target in list(self._cuts):
            self._cuts[source, target] = 1
            self.heal(source, target)

    def speed_up(self) -> None:
        """No link is slow any more. One that would still be busy for long with what it has breaks instead."""
        for link in list(self.client_links.values()):
            if link.downward.busy_until > self.world.now + SECOND:
                link.reset("it was too slow")
            link.downward.rate = 0

    # Clients' links.

    def dial(self, client: SimClient, number: int, broker: SimBroker) -> None:
        """A client connects."""
        arrival = self.world.now + 2 * self.latency()
        self.world.at(arrival, broker.name, "dial", self._answer, client, number, broker, life=client.life)

    def _answer(self, client: SimClient, number: int, broker: SimBroker) -> None:
        if self.is_cut(client.name, broker.name) or self.is_cut(broker.name, client.name):
            return  # nobody answers; the client gives up in its own time
        if not broker.listening:
            client.on_link_down(number, "connection refused")
            return
        self._serial += 1
        link = ClientLink(self, self._serial, client, number, broker)
        self.client_links[self._serial] = link
        broker.accept(link)
        client.on_link_up(number, link)
        if self.choices.chance(self.faults.stale):
            self._bring_back_old_frames(link)

    def forget(self, link: ClientLink) -> None:
        """A link is over."""
        self.client_links.pop(link.serial, None)

    def old_frames(self, client: str, broker: str, source: str) -> deque[bytes]:
        """What one side said in sessions between the two."""
        key = (client, broker, source)
        if key not in self._old:
            self._old[key] = deque(maxlen=OLD_FRAMES)
        return self._old[key]

    def _bring_back_old_frames(self, link: ClientLink) -> None:
        """Frames of an earlier session turn up in this one: both sides must ignore them."""
        for pipe in (link.upward, link.downward):
            old = list(link.old_frames(pipe.source))
            if old:
                at = self.world.now + 20 * self.latency()
                self.world.at(at, pipe.target, "stale", pipe.inject, old, life=link.life)
                self.world.probe("net.stale")

    def reset_some(self, choose: Callable[[int], int]) -> None:
        """One client's link breaks."""
        links = list(self.client_links.values())
        if links:
            links[choose(len(links))].reset("connection reset")
            self.world.probe("net.reset")

    # Links between brokers.

    def wish(self, source: SimBroker, peer: str) -> None:
        """A router asks for a link to a peer; it comes up as soon as it can."""
        target = self.world.brokers.get(peer)
        if target is None or target is source:
            return
        self._wishes[_pair(source.name, peer)] = None
        self.world.at(self.world.now + self.latency(), "world", "connect", self.connect, source.name, peer)

    def connect(self, one: str, other: str) -> None:
        """Brings a wished link up, if both ends are there and reach each other."""
        pair = _pair(one, other)
        brokers = [self.world.brokers[name] for name in pair]
        link = self._broker_links.get(pair)
        if pair not in self._wishes or (link is not None and link.up):
            return
        if not all(broker.running for broker in brokers) or self.is_cut(*pair) or self.is_cut(*pair[::-1]):
            self.world.after(200 * MILLISECOND, "world", "connect", self.connect, one, other)
            return
        del self._wishes[pair]
        link = self._broker_links[pair] = BrokerLink(*brokers)
        for index, broker in enumerate(brokers):
            peer = brokers[1 - index]
            self._by_number[broker.name, link.numbers[index]] = link
            broker.on_broker_link(link.numbers[index], peer)

    def to_broker(self, source: SimBroker, number: int, frame: bytes) -> None:
        """Sends a frame to another broker."""
        link = self._by_number.get((source.name, number))
        if link is None or not link.up:
            return
        index = link.other_end(source)
        target = link.ends[index]
        if link.lives[index].over or self.is_cut(source.name, target.name):
            return
        if source.streams:
            arrival = max(link.last_arrival[index], self.world.now + self.latency())
            link.last_arrival[index] = arrival
            self._carry(link, index, frame, arrival)
            return
        faults, choices = self.faults, self.choices
        if choices.chance(faults.loss):
            self.world.probe("net.lost")
            return
        self._carry(link, index, frame, self.world.now + self.latency())
        if choices.chance(faults.repeat):
            much_later = choices.chance(0.3)
            self.world.probe("net.repeated much later" if much_later else "net.repeated")
            wait = self.latency() + (choices.draw(20) * SECOND if much_later else 0)
            self._carry(link, index, frame, self.world.now + wait)

    def _carry(self, link: BrokerLink, index: int, frame: bytes, arrival: int) -> None:
        broker = link.ends[index]
        life, digest = link.lives[index], crc32c(frame)
        self.world.at(arrival, broker.name, "frame", self._hand_over, link, index, frame, life=life, digest=digest)

    @staticmethod
    def _hand_over(link: BrokerLink, index: int, frame: bytes) -> None:
        if link.up:
            link.ends[index].on_broker_frame(link.numbers[index], frame)

    def broker_gone(self, broker: SimBroker) -> None:
        """A broker's process is over: its peers notice after a while."""
        for pair, link in list(self._broker_links.items()):
            if broker in link.ends and link.up:
                self.break_link(pair)

    def break_link(self, pair: tuple[str, str]) -> None:
        """A link between brokers goes down; each end that lives hears of it."""
        link = self._broker_links.get(pair)
        if link is None or not link.up:
            return
        link.up = False
        for index, end in enumerate(link.ends):
            at = self.world.now + self.latency() + self.choices.draw(10) * 100 * MILLISECOND
            self.world.at(
                at, end.name, "link down", end.on_broker_link_down, link.numbers[index], life=link.lives[index]
            )

    def hang_up(self, source: SimBroker, number: int) -> None:
        """A router closes a link."""
        link = self._by_number.get((source.name, number))
        if link is not None:
            self.break_link(_pair(link.ends[0].name, link.ends[1].name))

    def flap_some(self, choose: Callable[[int], int]) -> None:
        """One link between brokers goes down."""
        up = [pair for pair, link in self._broker_links.items() if link.up]
        if up:
            self.break_link(up[choose(len(up))])
            self.world.probe("net.broker link down")


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)

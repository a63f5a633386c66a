"""The links between clients and brokers, and what goes wrong on one of them.

A client's link is a stream: what arrives is a prefix of what was sent, in order, until the link is reset.
It may be slow, cut in one direction for a while, chopped into single bytes, or garbled. Or it breaks its word, as a
proxy that knows frames may, and loses one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from google_crc32c import extend as crc32c_extend

from gapless.core.principals import Certificate
from gapless.core.wire.framing import FrameDecoder, encode_frame
from gapless.core.wire.messages.checks import HELLO_BYTES_MAX
from gapless.core.wire.numbering import SESSION_BYTES
from gapless.errors import RemoteProtocolError
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from gapless.spi import LinkHandler
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.network import Network

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"

LOW_WATER, HIGH_WATER = 64 << 10, 256 << 10


def whole(payload: Payload) -> bytes:
    """A payload in one piece."""
    return payload if isinstance(payload, bytes) else b"".join(payload)


def _is_of_a_session(payload: bytes) -> bool:
    return any(payload[:SESSION_BYTES])


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
        self._begun = False
        """Whether a frame has arrived: what was sent first may have been garbled so that the rest is waited for."""
        self._held: deque[list[bytes]] = deque()
        """What waits until the way is free, or the reader reads again."""
        self._above = False
        self.paused = False
        self.loses_next = False
        """Whether the next frame of a session vanishes."""

    def send(self, payloads: Sequence[Payload]) -> None:
        """Puts payloads on their way."""
        flat = [whole(payload) for payload in payloads]
        self._remember(flat)
        if self.loses_next:
            flat = self._lose_one(flat)
            if not flat:
                return
        network = self._link.network
        if self._held or network.is_cut(self.source, self.target):
            self._held.append(flat)
            self._grow(sum(map(len, flat)))
            return
        self._depart(flat)

    def _lose_one(self, flat: list[bytes]) -> list[bytes]:
        """What is left of payloads when the first one of a session is gone."""
        lost = next((number for number, payload in enumerate(flat) if _is_of_a_session(payload)), None)
        if lost is None:
            return flat
        self.loses_next = False
        self._world.sometimes("net.frame lost")
        return flat[:lost] + flat[lost + 1 :]

    def flush(self) -> None:
        """The way is free again, or the reader reads: what was held goes on."""
        while self._held and not self._link.closed and not self._link.network.is_cut(self.source, self.target):
            flat = self._held.popleft()
            self._shrink(sum(map(len, flat)))
            self._depart(flat)

    def raise_limit(self, limit: int) -> None:
        """Frames up to this size are accepted from now on."""
        self.limit = limit
        if self._decoder is not None:
            self._decoder.limit = limit

    def _depart(self, flat: list[bytes]) -> None:
        world, network = self._world, self._link.network
        leave = world.now
        if self.rate:
            size = sum(map(len, flat))
            leave = max(leave, self.busy_until) + size * SECOND // self.rate
            self.busy_until = leave
            self._grow(size)
            world.at(leave, self.source, "left", self._shrink, size, life=self._link.life)
        arrival = max(self._last_arrival, leave + network.latency())
        self._last_arrival = arrival
        if self._decoder is None:
            digest = 0
            for payload in flat:
                digest = crc32c_extend(digest, payload)
            world.at(arrival, self.target, "frames", self._arrive, flat, life=self._link.life, digest=digest)
        else:
            self._depart_bytewise(flat, arrival)

    def _depart_bytewise(self, flat: list[bytes], arrival: int) -> None:
        network = self._link.network
        data = b"".join(map(encode_frame, flat))
        if network.choices.chance(network.faults.garble):
            place = network.choices.draw(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << network.choices.draw(8)]) + data[place + 1 :]
            self._world.sometimes("net.garbled")
        draw, at = network.choices.draw, 0
        while at < len(data):
            piece = data[at : at + 1 + draw(min(len(data) - at, 1 << (2 * draw(7))))]
            at += len(piece)
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
        self._begun = True
        self.on_payloads(payloads)

    def inject(self, payloads: list[bytes]) -> None:
        """Something arrives that was not sent on this link, but never as the very first."""
        if not self._begun or self._last_arrival >= self._world.now:
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

    def _remember(self, flat: list[bytes]) -> None:
        of_a_session = list(filter(_is_of_a_session, flat))
        self._link.old_frames(self.source).extend(of_a_session)
        self._link.network.keep((self.source, self.target), self._link.serial, of_a_session)


class ClientLink:
    """A client's connection to a broker. The broker's engine has it as its `Link`."""

    secure = False
    certificate = Certificate()
    shown = b""

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
        """The connection breaks: each side notices it in its own time, and nothing on its way arrives."""
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

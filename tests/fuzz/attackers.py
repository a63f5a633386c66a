"""Who attacks: a client, somebody who is no node, and a node that has proven who it is and says what is false."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

import gapless
from fuzz.mutations import Mutator
from gapless.core.network.facts import SendFrame
from gapless.core.network.greeting import NONCE_BYTES, PROTOCOL, NodeHello, NodeProof, encode_control
from gapless.core.wire.codec import encode
from gapless.core.wire.framing import encode_frame
from gapless.core.wire.numbering import HEAD_BYTES
from integration.bad_messages import requests
from integration.raw_client import RawClient
from wire import hello

if TYPE_CHECKING:
    from gapless.node.node import Node

PAUSE = 0.002
"""Seconds between two frames: the brokers do other work, too."""
KEPT = 300
LIES = 0.1
"""Of the frames of a node that lies so many are other ones than it should send."""
NODE_HEAD = 9


class Attacker:
    """Counts what it has done."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self.mutator = Mutator(self.random)
        self.done: Counter[str] = Counter()

    async def run(self, address: str, seconds: float) -> None:
        """Attacks for so long; that connections are refused or end is all that can come of it."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            with contextlib.suppress(OSError, asyncio.TimeoutError, AssertionError, gapless.GaplessError):
                await asyncio.wait_for(self.attack(address), 5)
            await asyncio.sleep(PAUSE)

    async def attack(self, address: str) -> None:
        """One connection."""
        raise NotImplementedError


class BadClient(Attacker):
    """It is welcome, or not, and then says what no client says."""

    async def attack(self, address: str) -> None:
        """One connection, and up to fifty frames."""
        async with RawClient(address) as client:
            if self.random.random() < 0.2:
                self.done["frames before the welcome"] += 1
                payload = encode(0, hello(instance="fuzz"))
                await client.send(encode_frame(payload[:HEAD_BYTES] + self.mutator.frame(payload[HEAD_BYTES:])))
                await client.hear_all(1)
                return
            await client.shake_hands(f"fuzz-{self.random.randrange(3)}")
            pubend, tick = "default@1", self.random.randrange(1 << 60)
            for _ in range(self.random.randrange(1, 50)):
                message = self.random.choice(requests(pubend, tick, self.random.randrange(1, 5)))
                payload = encode(client.session, message)
                if self.random.random() < 0.8:
                    payload = payload[:HEAD_BYTES] + self.mutator.frame(payload[HEAD_BYTES:])
                if self.random.random() < 0.05:
                    payload = self.mutator.noise(payload)
                self.done["frames of a client"] += 1
                await client.send_payloads(payload)
                await asyncio.sleep(PAUSE)


class BadStranger(Attacker):
    """It dials the nodes' address, and does not know the secret."""

    async def attack(self, address: str) -> None:
        """One connection, and a few frames."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            nonce = self.random.randbytes(NONCE_BYTES)
            greeting = NodeHello(PROTOCOL, "fuzzed", "evil", "phb", (), 1, "knowledge", b"", 1 << 22, nonce)
            for message in (greeting, NodeProof(self.random.randbytes(32))):
                payload = bytes(NODE_HEAD) + encode_control(message)
                if self.random.random() < 0.7:
                    payload = payload[:NODE_HEAD] + self.mutator.frame(payload[NODE_HEAD:])
                if self.random.random() < 0.1:
                    payload = self.mutator.noise(payload)
                self.done["frames of no node"] += 1
                writer.write(encode_frame(payload))
                await writer.drain()
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 1)
        finally:
            writer.close()


class Liar:
    """A node of the network, of which some frames to others are not what its router wanted to say."""

    def __init__(self, seed: str, node: Node) -> None:
        self.mutator = Mutator(Random(seed))
        self.random = self.mutator.random
        self.done: Counter[str] = Counter()
        self.lies = LIES
        self._said: deque[bytes] = deque(maxlen=KEPT)
        self._node = node
        self._shell: Any = None

    def watch(self) -> None:
        """Stands between the router and its links, also when the node starts over (it may fail of its own lies)."""
        shell: Any = self._node._shell
        if shell is None or shell is self._shell:
            return
        self._shell = shell
        links = shell.links
        to_network = links.to_network

        def lie(effect: Any) -> None:
            if isinstance(effect, SendFrame):
                for frame in self._frames(effect.frame):
                    to_network(SendFrame(effect.link, frame, effect.urgent))
            else:
                to_network(effect)

        links.to_network = lie

    def _frames(self, frame: bytes) -> list[bytes]:
        random = self.random
        self._said.append(frame)
        if random.random() >= self.lies:
            return [frame]
        way = random.random()
        if way < 0.1:
            self.done["left out"] += 1
            return []
        if way < 0.2:
            self.done["said twice"] += 1
            return [frame, frame]
        if way < 0.35:
            self.done["an older one before"] += 1
            return [random.choice(self._said), frame]
        self.mutator.mild = random.random() < 0.7
        self.done["false, and possible" if self.mutator.mild else "false"] += 1
        return [self._false(frame)]

    def _false(self, frame: bytes) -> bytes:
        """Mostly one that parses, with another part in it."""
        if self.random.random() < 0.1:
            return self.mutator.frame(frame)
        address, message = msgspec.msgpack.decode(frame, strict=False)
        try:
            if self.random.random() < 0.1:
                return msgspec.msgpack.encode([self.mutator.part(address), message])
            other = self.mutator.part(message[1:])
            return msgspec.msgpack.encode([address, [message[0], *(other if isinstance(other, list) else message[1:])]])
        except (ValueError, OverflowError, msgspec.MsgspecError):
            return frame

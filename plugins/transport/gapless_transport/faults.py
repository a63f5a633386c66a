"""What can go wrong between two ends in memory, drawn from a seed. Pure: time is an argument."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence

from pydantic import Field

from gapless.core.wire.framing import PAYLOAD_BYTES_MAX, FrameDecoder, encode_frame
from gapless_transport.options import LinkOptions


class FaultOptions(LinkOptions):
    """How likely each fault is, for each frame; 0 (the default) means never. Times are in seconds."""

    seed: int = 0
    """The same seed, the same links in the same order and the same frames meet the same faults."""
    drop: float = Field(default=0.0, ge=0, le=1)
    """The frame is lost."""
    duplicate: float = Field(default=0.0, ge=0, le=1)
    """The frame arrives twice, the second time up to `late_max` later."""
    reorder: float = Field(default=0.0, ge=0, le=1)
    """The frame arrives up to `late_max` later than it should, and does not hold up those behind it."""
    late_max: float = Field(default=0.02, ge=0)
    """How late a copy or a reordered frame may be."""
    delay_min: float = Field(default=0.0, ge=0)
    """What every frame takes at least. Frames that are merely delayed stay in order."""
    delay_mean: float = Field(default=0.0, ge=0)
    """What it takes beyond that, on average."""
    cut: float = Field(default=0.0, ge=0, le=1)
    """From this frame on this direction loses everything, for up to `outage_max`; neither end is told."""
    partition: float = Field(default=0.0, ge=0, le=1)
    """The same, in both directions."""
    outage_max: float = Field(default=0.1, ge=0)
    """How long a cut or a partition may last."""
    reset: float = Field(default=0.0, ge=0, le=1)
    """The link breaks; what is under way is lost, and both ends are told."""
    chop: int = Field(default=0, ge=0)
    """Frames travel as bytes, in pieces of 1 to this many, and are put together by the real decoder."""

    @property
    def faulty(self) -> bool:
        """Whether anything can go wrong at all."""
        return any(
            (
                self.drop,
                self.duplicate,
                self.reorder,
                self.delay_min,
                self.delay_mean,
                self.cut,
                self.partition,
                self.reset,
                self.chop,
            )
        )


class LinkResetError(Exception):
    """The link breaks at this frame."""


class Wire:
    """One direction of a link: frames go in at one end and come out at the other, at once and in order."""

    def __init__(self, is_barred: Callable[[], bool]) -> None:
        """A wire that loses everything while `is_barred()`."""
        self.size = 0
        """The bytes under way."""
        self._is_barred = is_barred
        self._payloads: list[bytes] = []

    def put(self, payloads: Sequence[bytes], now: float) -> None:
        """Frames enter. Raises LinkResetError when the link is to break."""
        if not self._is_barred():
            self._payloads += payloads
            self.size += sum(map(len, payloads))

    def take(self, now: float) -> list[bytes]:
        """Removes the frames that have arrived."""
        arrived, self._payloads = self._payloads, []
        self.size = 0
        return arrived

    def next_at(self) -> float:
        """When the next frame arrives; only asked while something is under way."""
        return float("-inf")


class FaultyWire(Wire):
    """A wire with the faults of its options, each drawn from a stream of its own.

    So turning one fault on does not change where the others strike.
    """

    def __init__(self, options: FaultOptions, label: str, is_barred: Callable[[], bool]) -> None:
        """A wire whose draws depend on `options.seed` and `label` alone."""
        super().__init__(is_barred)
        self.other: FaultyWire | None = None
        """The opposite direction, which a partition also darkens."""
        self.dark_until = float("-inf")
        self._options = options
        self._label = label
        self._streams: dict[str, random.Random] = {}
        self._under_way: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._latest = float("-inf")
        self._decoder = FrameDecoder(PAYLOAD_BYTES_MAX)

    def put(self, payloads: Sequence[bytes], now: float) -> None:
        """Frames enter, and meet their faults."""
        for payload in self._chopped(payloads) if self._options.chop else payloads:
            if self._strikes("reset", self._options.reset):
                raise LinkResetError
            self._darken(now)
            if self._strikes("drop", self._options.drop) or now < self.dark_until or self._is_barred():
                continue
            self._send(payload, self._arrival(now))
            if self._strikes("duplicate", self._options.duplicate):
                self._send(payload, now + self._stream("duplicate").uniform(0, self._options.late_max))

    def take(self, now: float) -> list[bytes]:
        """Removes the frames that have arrived."""
        arrived = []
        while self._under_way and self._under_way[0][0] <= now:
            _, _, payload = heapq.heappop(self._under_way)
            self.size -= len(payload)
            arrived.append(payload)
        return arrived

    def next_at(self) -> float:
        """When the next frame arrives; only asked while something is under way."""
        return self._under_way[0][0]

    def _darken(self, now: float) -> None:
        for kind, likely in (("cut", self._options.cut), ("partition", self._options.partition)):
            if self._strikes(kind, likely):
                until = now + self._stream(kind).uniform(0, self._options.outage_max)
                self.dark_until = max(self.dark_until, until)
                if kind == "partition" and self.other is not None:
                    self.other.dark_until = max(self.other.dark_until, until)

    def _arrival(self, now: float) -> float:
        arrival = now + self._options.delay_min
        if self._options.delay_mean:
            arrival += self._stream("delay").expovariate(1 / self._options.delay_mean)
        if self._strikes("reorder", self._options.reorder):
            return arrival + self._stream("reorder").uniform(0, self._options.late_max)
        self._latest = max(self._latest, arrival)
        return self._latest

    def _send(self, payload: bytes, arrival: float) -> None:
        self._count += 1
        self.size += len(payload)
        heapq.heappush(self._under_way, (arrival, self._count, payload))

    def _chopped(self, payloads: Sequence[bytes]) -> list[bytes]:
        data = b"".join(map(encode_frame, payloads))
        stream = self._stream("chop")
        whole: list[bytes] = []
        start = 0
        while start < len(data):
            end = start + stream.randint(1, self._options.chop)
            whole += self._decoder.feed(data[start:end])
            start = end
        return whole

    def _strikes(self, kind: str, likely: float) -> bool:
        return likely > 0 and self._stream(kind).random() < likely

    def _stream(self, kind: str) -> random.Random:
        if kind not in self._streams:
            # Text as a seed is hashed by SHA-512, so it means the same in every process.
            name = f"{self._options.seed}/{self._label}/{kind}"
            self._streams[kind] = random.Random(name)  # noqa: S311 — faults are no secrets
        return self._streams[kind]

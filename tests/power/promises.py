"""What a broker has told its clients by a moment: read off what it sent, for sent is told."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gapless.core.wire.codec import decode_server
from gapless.core.wire.framing import FrameDecoder
from gapless.core.wire.messages import Deliver, DeliverSilence, Published, Subscribed
from integration.io_shim import Call, Kind
from power.workload import Logged, Truth


@dataclass(frozen=True, slots=True)
class Owed:
    """What must be true of every disk that a power cut leaves after a moment."""

    events: tuple[Logged, ...]
    """Those that somebody was told of, in the order of their ticks."""
    sequences: dict[str, int]
    """How many events each publisher was told to have logged."""
    horizon: int
    """No new event may have a tick up to here."""
    subscriptions: dict[str, int]
    """The durable subscriptions that were promised, and the tick at which each begins."""
    possible: frozenset[str]
    """Those that may be there."""
    acknowledged: dict[str, int]
    """How far each has acknowledged at most."""


class Promises:
    """All that was told, in the order of the journal."""

    def __init__(self, calls: Sequence[Call], truth: Truth) -> None:
        self._truth = {event.tick: event for event in truth.events}
        self._ticks: list[tuple[int, int]] = []
        self._horizons: list[tuple[int, int]] = [(-1, 0)]
        self._made: list[tuple[int, str, int]] = []
        self._asked: list[tuple[int, str]] = []
        self._given_up: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._acknowledged: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._decoders: dict[str, FrameDecoder] = {}
        self._begun: dict[str, int] = {}
        for call in calls:
            if call.kind is Kind.NOTE:
                self._hear_note(call.began, call.data.decode().split())
            elif call.kind is Kind.SEND and call.worked:
                self._hear_sent(call)
        self._ticks.sort()
        self._horizons = _rising(self._horizons)
        self._places = [place for place, _ in self._horizons]

    def at(self, place: int) -> Owed:
        """What was told before a place in the journal."""
        ticks = sorted({tick for told, tick in self._ticks if told < place})
        events = tuple(self._truth[tick] for tick in ticks if tick in self._truth)
        sequences: dict[str, int] = {}
        for event in events:
            sequences[event.publisher] = max(event.sequence, sequences.get(event.publisher, 0))
        return Owed(
            events,
            sequences,
            self._horizons[bisect_right(self._places, place) - 1][1],
            {name: start for told, name, start in self._made if told < place and not self._ended(name, place)},
            frozenset(name for asked, name in self._asked if asked < place < self._gone.get(name, place + 1)),
            {
                name: max([tick for told, tick in ticks if told < place], default=0)
                for name, ticks in self._acknowledged.items()
            },
        )

    def unknown(self) -> set[int]:
        """Ticks that were told and that no client knows of in the end: none, or the recording is no good."""
        return {tick for _, tick in self._ticks} - set(self._truth)

    def _ended(self, name: str, place: int) -> bool:
        return self._given_up.get(name, place) < place

    def _hear_note(self, place: int, words: list[str]) -> None:
        match words:
            case ["subscribe", name]:
                self._asked.append((place, name))
            case ["unsubscribe", name]:
                self._given_up[name] = place
            case ["unsubscribed", name]:
                self._gone[name] = place
            case ["acknowledge", name, tick]:
                self._acknowledged[name].append((place, int(tick)))

    def _hear_sent(self, call: Call) -> None:
        decoder = self._decoders.setdefault(call.target, FrameDecoder(1 << 26))
        began = self._begun.get(call.target, call.began) if decoder.inside_frame else call.began
        for message in map(decode_server, decoder.feed(call.data)):
            self._hear(began, message)
            began = call.began
        self._begun[call.target] = began

    def _hear(self, place: int, message: object) -> None:
        match message:
            case Published():
                self._ticks += [(place, run.first + run.step * n) for run in message.ticks for n in range(run.count)]
            case Deliver():
                ticks = message.columns.ticks()
                self._ticks += [(place, tick) for tick in ticks]
                self._horizons.append((place, max(ticks)))
            case DeliverSilence():
                self._horizons.append((place, message.upto))
            case Subscribed(created=True):
                _, name = self._asked[-1]  # they are made one after the other
                start = max((position.tick for position in message.positions), default=0)
                self._made.append((place, name, start))


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    highest, rising = 0, []
    for place, tick in sorted(pairs):
        highest = max(highest, tick)
        rising.append((place, highest))
    return rising


def _newest(pairs: Sequence[tuple[int, int]], place: int) -> int:
    return max((tick for told, tick in pairs if told < place), default=0)

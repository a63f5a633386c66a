"""What brokers receive of pubends without a want; silence is sent as lazily as possible."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.network.facts import BrokerId
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId, Tick
from gapless_sim.hostile.mesh import Mesh, Station
from gapless_sim.hostile.pieces import joined

SILENCE = 1 * SECOND
"""How long silence waits for something to travel with (SIL)."""


@dataclass(slots=True)
class PushState:
    """What one broker has received of one pubend."""

    told: Tick = 0
    silent: Knowledge | None = None
    """What it will receive next: all of it was filtered out."""


class Pushes:
    """What is said of one pubend to each broker, in order; only what was filtered out waits."""

    def __init__(self, station: Station, mesh: Mesh, pubend: PubendId) -> None:
        self._station = station
        self._mesh = mesh
        self._pubend = pubend
        self._brokers: dict[BrokerId, PushState] = {}

    def told(self, broker: BrokerId) -> Tick:
        """Up to where a broker has received it."""
        told = self._brokers.get(broker)
        return told.told if told else 0

    def say(self, broker: BrokerId, knowledge: Knowledge) -> None:
        """Says it, together with the silence that waits."""
        told = self._told(broker)
        if told.silent is not None:
            knowledge = self._joined(broker, told.silent, knowledge)
            self._stop(broker, told)
        told.told = max(told.told, knowledge.hi)
        self._mesh.send(broker, knowledge)

    def keep_silent(self, broker: BrokerId, silence: Knowledge) -> None:
        """Nothing of it is wanted: it is said with the next that is, or within SIL."""
        told = self._told(broker)
        if told.silent is None:
            told.silent = silence
            self._station.timers.set(("silence", self._pubend, broker), self._station.now + SILENCE)
        else:
            told.silent = self._joined(broker, told.silent, silence)

    def flush(self, broker: BrokerId) -> None:
        """Silence has waited long enough."""
        told = self._told(broker)
        if told.silent is not None:
            silence, told.silent = told.silent, None
            self.say(broker, silence)

    def drop_silence(self) -> None:
        """What waits is not said any more: who needs it will ask."""
        for broker, told in self._brokers.items():
            self._stop(broker, told)

    def forget(self) -> None:
        """As if nobody had been told anything."""
        self.drop_silence()
        self._brokers.clear()

    def _told(self, broker: BrokerId) -> PushState:
        return self._brokers.setdefault(broker, PushState())

    def _joined(self, broker: BrokerId, silence: Knowledge, following: Knowledge) -> Knowledge:
        """Both in one; where that cannot be, the silence is said now."""
        whole = joined(silence, following)
        if whole is None:
            self._mesh.send(broker, silence)
        return whole or following

    def _stop(self, broker: BrokerId, told: PushState) -> None:
        if told.silent is not None:
            told.silent = None
            self._station.timers.cancel(("silence", self._pubend, broker))

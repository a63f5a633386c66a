"""Openings and batches as they reach the PHB's node: each is submitted, in the order it was placed.

Messages come late, twice and out of order, and the pubend takes whatever has the next sequence. That is
not enough: a client whose batch was refused for good gives its sequences to the batches behind it, so an
old copy of one of those would be logged a second time under the sequence it had before. Therefore nothing
is submitted that its entry was seen to have given up, and nothing that was sent to a router which has
forgotten what it saw since.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from gapless.core.network.facts import BrokerId, OpenRequest, Outcome, Pub, Submit, SubmitOpen, Verdict
from gapless.core.network.frames import Address, Answer
from gapless.core.stream.ticks import PubendId
from gapless_sim.hostile.client_side import Line, line_of
from gapless_sim.hostile.mesh import Mesh, Station
from gapless_sim.hostile.timers import SECOND

SUBMIT_LATE = 5 * SECOND
REMEMBERED = 1024
"""How many questions of one entry are known to have been asked, and of how many of its publishers."""
ORIGINS = 64
"""How many processes of entries are remembered."""
LATE_MAX = 100
"""How many batches wait to be submitted again."""

From: TypeAlias = "tuple[BrokerId, int, int]"
"""A broker, its incarnation, the life of its router."""


@dataclass(slots=True)
class Origin:
    """What the entry of one process has asked, in all lives of its router: it never uses a number twice."""

    asked: dict[int, Answer | None] = field(default_factory=dict)
    """Each question that was submitted, and its answer once there is one."""
    floors: dict[Line, int] = field(default_factory=dict)
    """What lies below is given up."""
    held: dict[int, tuple[int, OpenRequest | Pub]] = field(default_factory=dict)
    """What came too early, by the question that is to come before it."""

    def is_given_up(self, number: int, line: Line) -> bool:
        """Whether the entry does not wait for an answer any more, as far as that was seen."""
        return number < self.floors.get(line, 0)

    def raise_floor(self, line: Line, floor: int) -> None:
        """The entry said what it still waits for."""
        self.floors[line] = max(floor, self.floors.pop(line, 0))
        _shorten(self.floors)

    def waits_for(self, before: int, number: int, line: Line) -> bool:
        """Whether a question's turn comes only after that of another one, which may yet come."""
        if not before or before in self.asked or number in self.asked:
            return False
        return not self.is_given_up(before, line)


class RequestIntake:
    """What entries ask of the pubends of this node."""

    def __init__(self, station: Station, mesh: Mesh, pubends: Collection[PubendId]) -> None:
        self._station = station
        self._mesh = mesh
        self._pubends = pubends
        self._origins: dict[tuple[BrokerId, int], Origin] = {}
        self._late: dict[int, tuple[From, int, Pub]] = {}
        self._count = 0

    def on_request(self, broker: BrokerId, message: OpenRequest | Pub, address: Address) -> None:
        """An opening or a batch.

        The address: our life as the entry knows it, the entry's own, the question's number, that of the one
        that is to be submitted before it, and the lowest of its line that the entry waits for.
        """
        ours, theirs, number, before, floor = cast("tuple[int, int, int, int, int]", address)
        sender = (broker, self._mesh.incarnation(broker) or 0, theirs)
        if ours != self._mesh.life_for(broker):  # of ours, or of the entry's, that is over
            self._answer(sender, number, _put_off(message, "the router has begun anew"), taken=False)
            return
        origin, line = self._origin(sender), line_of(message)
        origin.raise_floor(line, floor)
        if origin.waits_for(before, number, line) and not self._station.hostility.happens("unordered"):
            origin.held[before] = (number, message)
            _shorten(origin.held)
            return
        following: tuple[int, OpenRequest | Pub] | None = (number, message)
        while following is not None:
            self._take_up(sender, origin, *following)
            following = origin.held.pop(following[0], None)

    def _take_up(self, sender: From, origin: Origin, number: int, message: OpenRequest | Pub) -> None:
        """It is this question's turn: it is submitted, unless it was, or may no longer be."""
        if origin.is_given_up(number, line_of(message)):
            return
        if number in origin.asked:
            answer = origin.asked[number]
            if answer is not None:
                self._answer(sender, number, answer)
        elif not self._pubends or (message.pubend and message.pubend not in self._pubends):
            self._answer(sender, number, _put_off(message, "the pubend is not open (yet)"))
        else:
            origin.asked[number] = None
            _shorten(origin.asked)
            self._submit(sender, number, message)

    def submitted(self, reply_to: Hashable, pubend: PubendId, outcome: Outcome) -> None:
        """How one ended. A request that was submitted once too often has nobody to answer to."""
        if reply_to is None:
            return
        sender, number = cast("tuple[From, int]", reply_to)
        answer = Answer(pubend, outcome)
        origin = self._origins.get(sender[:2])
        if origin is not None and number in origin.asked:
            origin.asked[number] = answer
        self._answer(sender, number, answer)

    def submit_late(self, count: int) -> None:
        """Submits a batch again, unless it was given up."""
        sender, number, pub = self._late.pop(count)
        origin = self._origins.get(sender[:2])
        if origin is not None and not origin.is_given_up(number, line_of(pub)):
            self._station.effects.append(Submit(pub, None))

    def forget(self) -> None:
        """As if it had just begun; the station's life is another one now."""
        self._origins.clear()

    def _origin(self, sender: From) -> Origin:
        process = sender[:2]
        origin = self._origins.get(process)
        if origin is None:
            origin = self._origins[process] = Origin()
            if len(self._origins) > ORIGINS:
                del self._origins[next(iter(self._origins))]
        return origin

    def _submit(self, sender: From, number: int, message: OpenRequest | Pub) -> None:
        effects, hostility = self._station.effects, self._station.hostility
        for reply_to in ((sender, number), None)[: 1 + hostility.happens("submit_twice")]:
            if isinstance(message, Pub):
                effects.append(Submit(message, reply_to))
            else:
                effects.append(SubmitOpen(message, reply_to))
        if isinstance(message, Pub) and hostility.happens("submit_late") and len(self._late) < LATE_MAX:
            self._count += 1
            self._late[self._count] = (sender, number, message)
            self._station.timers.set(("submit", self._count), self._station.within(SUBMIT_LATE))

    def _answer(self, sender: From, number: int, answer: Answer, *, taken: bool = True) -> None:
        """Answers the entry, unless another process is there now."""
        broker, incarnation, life = sender
        if self._mesh.incarnation(broker) == incarnation:
            self._mesh.send(broker, answer, (life, number, self._mesh.life_for(broker), int(taken)))


def _shorten(table: dict[Any, Any]) -> None:
    if len(table) > REMEMBERED:
        del table[next(iter(table))]


def _put_off(message: OpenRequest | Pub, reason: str) -> Answer:
    sequence = message.first if isinstance(message, Pub) else 0
    return Answer(message.pubend, Outcome(Verdict.RETRY, reason, sequence))

"""Openings and batches as they reach the PHB's node: each is submitted, in the order it was placed.

Messages come late, twice and out of order, and the pubend takes whatever has the next sequence. That is
not enough: a client whose batch was refused for good gives its sequences to the batches behind it, so an
old copy of one of those would be logged a second time under the sequence it had before. Therefore no
message is submitted once a later one of its publisher was taken, and none that was sent to a router which
has forgotten what it saw since.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from gapless.core.routing import BrokerId, OpenRequest, Outcome, Pub, Submit, SubmitOpen, Verdict
from gapless.core.routing_frames import Address, Answer
from gapless.core.ticks import PubendId
from gapless.testing.hostile.mesh import Mesh, Station
from gapless.testing.hostile.timers import SECOND

SUBMIT_LATE = 5 * SECOND
REMEMBERED = 4096
"""How many questions of one entry are known to have been asked, and for how many of its publishers."""
ORIGINS = 256

PUT_OFF = frozenset({Verdict.RESUME, Verdict.RETRY})
"""Outcomes of what was not taken: an earlier message may still be."""

From: TypeAlias = "tuple[BrokerId, int, int]"
"""A broker, its incarnation, the life of its router."""


@dataclass(slots=True)
class Asked:
    """A question, and its answer once there is one."""

    publisher: str
    before: int
    """The latest question of the publisher when this one came."""
    answer: Answer | None = None

    @property
    def was_put_off(self) -> bool:
        """Whether the same sequences will be placed again, so that nothing is overtaken by it."""
        return self.answer is not None and self.answer.outcome.verdict in PUT_OFF


@dataclass(slots=True)
class Origin:
    """What one life of one entry has asked."""

    asked: dict[int, Asked] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    """The last question of each publisher that was not put off."""
    held: dict[int, tuple[int, OpenRequest | Pub]] = field(default_factory=dict)
    """What came too early, by the question that is to come before it."""

    def waits_for(self, before: int, number: int, publisher: str) -> bool:
        """Whether a question's turn comes only after that of another one, which may yet come."""
        return before > self.latest.get(publisher, 0) and before not in self.asked and number not in self.asked

    def take(self, number: int, publisher: str) -> None:
        """A question was asked that is later than its publisher's others."""
        self.asked[number] = Asked(publisher, self.latest.get(publisher, 0))
        self.latest.pop(publisher, None)
        self.latest[publisher] = number
        _shorten(self.asked)
        _shorten(self.latest)

    def answered(self, number: int, answer: Answer) -> None:
        """A question was answered; if it was put off, the ones before it may come yet."""
        asked = self.asked.get(number)
        if asked is None:
            return
        asked.answer = answer
        latest = self.asked.get(self.latest.get(asked.publisher, 0))
        while latest is not None and latest.was_put_off:
            self.latest[latest.publisher] = latest.before
            latest = self.asked.get(latest.before)


class Requests:
    """What entries ask of the pubends of this node."""

    def __init__(self, station: Station, mesh: Mesh, pubends: Collection[PubendId]) -> None:
        self._station = station
        self._mesh = mesh
        self._pubends = pubends
        self._origins: dict[From, Origin] = {}
        self._late: dict[int, tuple[From, int, Pub]] = {}
        self._count = 0

    def on_request(self, broker: BrokerId, message: OpenRequest | Pub, address: Address) -> None:
        """An opening or a batch.

        The address: our life as the entry knows it, the entry's own, the question's number, and that of the
        one that is to be submitted before it.
        """
        ours, theirs, number, before = cast("tuple[int, int, int, int]", address)
        sender = (broker, self._mesh.incarnation(broker) or 0, theirs)
        if ours != self._station.life:
            self._answer(sender, number, _put_off(message, "the router has begun anew"), taken=False)
            return
        origin = self._origin(sender)
        if origin.waits_for(before, number, message.publisher) and not self._station.hostility.happens("unordered"):
            origin.held[before] = (number, message)
            _shorten(origin.held)
            return
        following: tuple[int, OpenRequest | Pub] | None = (number, message)
        while following is not None:
            self._take_up(sender, origin, *following)
            following = origin.held.pop(following[0], None)

    def _take_up(self, sender: From, origin: Origin, number: int, message: OpenRequest | Pub) -> None:
        """It is this question's turn: it is submitted, unless it was, or may no longer be."""
        asked = origin.asked.get(number)
        if asked is not None:
            if asked.answer is not None:
                self._answer(sender, number, asked.answer)
        elif number <= origin.latest.get(message.publisher, 0):
            self._answer(sender, number, _put_off(message, "overtaken by a later batch"))
        elif not self._pubends or (message.pubend and message.pubend not in self._pubends):
            self._answer(sender, number, _put_off(message, "the pubend is not open (yet)"))
        else:
            origin.take(number, message.publisher)
            self._submit(sender, number, message)

    def submitted(self, reply_to: Hashable, pubend: PubendId, outcome: Outcome) -> None:
        """How one ended. What was submitted once too often has nobody to tell."""
        if reply_to is None:
            return
        sender, number = cast("tuple[From, int]", reply_to)
        answer = Answer(pubend, outcome)
        origin = self._origins.get(sender)
        if origin is not None:
            origin.answered(number, answer)
        self._answer(sender, number, answer)

    def submit_late(self, count: int) -> None:
        """Submits a batch again, unless its publisher has moved on."""
        sender, number, pub = self._late.pop(count)
        origin = self._origins.get(sender)
        if origin is not None and origin.latest.get(pub.publisher) == number:
            self._station.effects.append(Submit(pub, None))

    def forget(self) -> None:
        """As if it had just begun; the station's life is another one now."""
        self._origins.clear()

    def _origin(self, sender: From) -> Origin:
        origin = self._origins.get(sender)
        if origin is None:
            origin = self._origins[sender] = Origin()
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
        if isinstance(message, Pub) and hostility.happens("submit_late") and len(self._late) < REMEMBERED:
            self._count += 1
            self._late[self._count] = (sender, number, message)
            self._station.timers.set(("submit", self._count), self._station.within(SUBMIT_LATE))

    def _answer(self, sender: From, number: int, answer: Answer, *, taken: bool = True) -> None:
        """Answers the entry, unless another process is there now."""
        broker, incarnation, life = sender
        if self._mesh.incarnation(broker) == incarnation:
            self._mesh.send(broker, answer, (life, number, self._station.life, int(taken)))


def _shorten(table: dict[Any, Any]) -> None:
    if len(table) > REMEMBERED:
        del table[next(iter(table))]


def _put_off(message: OpenRequest | Pub, reason: str) -> Answer:
    sequence = message.first if isinstance(message, Pub) else 0
    return Answer(message.pubend, Outcome(Verdict.RETRY, reason, sequence))

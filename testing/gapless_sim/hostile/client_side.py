"""Where clients of this node place openings and batches: they go to the pubend's broker, once answered.

A question is repeated until it is answered or was asked for long enough. Then its fate is uncertain, and
the client is told to ask again: what was logged after all is recognised.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from gapless.core.network.facts import BrokerId, OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless.core.network.frames import Address, Answer
from gapless.core.stream.ticks import PubendId
from gapless_sim.hostile.mesh import Mesh, Station
from gapless_sim.hostile.timers import MILLISECOND, SECOND

REPEAT = 250 * MILLISECOND
"""After how long a question is repeated at first; then after twice as long, and so on."""
ANSWER_LIMIT = 3 * SECOND
"""How long it is asked altogether."""
QUESTIONS_MAX = 4096


Line: TypeAlias = "tuple[str, bool, int]"
"""A publisher, whether it is a producer of keyed batches, and its epoch.

Its batches are submitted in order, and the refusal of one speaks for those behind.
"""


def line_of(message: OpenRequest | Pub) -> Line:
    """The line of a batch; the openings of a name are one by themselves, with at most one that is asked."""
    return message.publisher, message.keyed, message.epoch if isinstance(message, Pub) else -1


@dataclass(slots=True)
class Placement:
    """An opening or a batch that was not answered yet."""

    message: OpenRequest | Pub
    reply_to: Hashable
    owner: BrokerId
    until: int
    wait: int = REPEAT
    life: int = 0
    """The life of the owner's router that it was last sent to."""

    @property
    def line(self) -> Line:
        """Whose batches it is one of."""
        return line_of(self.message)


class ClientSide:
    """All questions of this node's clients."""

    def __init__(self, station: Station, mesh: Mesh, number: int = 0) -> None:
        """`number`: above those of all questions that a router of this process has asked before."""
        self._station = station
        self._mesh = mesh
        self._questions: dict[int, Placement] = {}
        self._lines: dict[Line, dict[int, None]] = {}
        """The questions of each line, in order."""
        self._number = number
        """It goes on through all lives: what an earlier one asked, and is still on its way, is known by it."""
        self._lives: dict[BrokerId, int] = {}

    def open(self, request: OpenRequest, reply_to: Hashable) -> None:
        """Opens a publisher where it was, or where its name says.

        An opening of that name which was not answered yet is asked no more: it may be of a process that is
        over, and would fence this one if it came behind it.
        """
        for number in list(self._lines.get(line_of(request), ())):
            self._end(number, "the publisher was opened again")
        owner = self._station.owners.get(request.pubend) if request.pubend else self._home(request.publisher)
        self._ask(request, reply_to, owner)

    def place(self, pub: Pub, reply_to: Hashable) -> None:
        """Places a batch where its publisher is open."""
        self._ask(pub, reply_to, self._station.owners.get(pub.pubend))

    def on_answer(self, broker: BrokerId, answer: Answer, address: Address) -> None:
        """The owner's answer, or that it does not know us any more. It may come more than once."""
        life, number, theirs, taken = address
        assert isinstance(number, int)
        assert isinstance(theirs, int)
        self.on_life(broker, theirs)
        question = self._questions.get(number)
        if question is None or life != self._station.life or broker != question.owner:
            return
        if taken:
            self._finish(number, answer.pubend, answer.outcome)
        elif question.life != theirs:
            self._send(number, question)

    def on_life(self, broker: BrokerId, life: int) -> None:
        """What the life of a broker's router is: only what is sent to that one is taken there."""
        self._lives[broker] = life

    def repeat(self, number: int) -> None:
        """A question has waited long enough for its answer: it is repeated, or given up."""
        question = self._questions[number]
        if self._station.now >= question.until:
            self._finish(number, question.message.pubend, _unanswered(question, "the pubend's broker does not answer"))
        else:
            self._send(number, question)
            self._wait(number, question)

    def forget(self) -> None:
        """As if it had just begun: nobody will answer what was asked before."""
        self._lives.clear()
        for number in list(self._questions):
            self._end(number, "the router has begun anew")

    def _home(self, publisher: str) -> BrokerId | None:
        """The broker for a publisher that is nowhere yet: for one name always the same, on every node."""
        hosts = self._mesh.with_role("phb")
        if not hosts:
            return None
        digest = blake2b(publisher.encode(), digest_size=8).digest()
        return hosts[int.from_bytes(digest, "big") % len(hosts)]

    def _ask(self, message: OpenRequest | Pub, reply_to: Hashable, owner: BrokerId | None) -> None:
        if owner is None or len(self._questions) >= QUESTIONS_MAX:
            first = message.first if isinstance(message, Pub) else 0
            outcome = Outcome(Verdict.RETRY, "no broker is known for the pubend at present", first)
            self._station.effects.append(Submitted(reply_to, message.pubend, outcome))
            return
        self._number += 1
        question = Placement(message, reply_to, owner, self._station.now + ANSWER_LIMIT)
        self._questions[self._number] = question
        self._lines.setdefault(question.line, {})[self._number] = None
        self._send(self._number, question)
        self._wait(self._number, question)

    def _send(self, number: int, question: Placement) -> None:
        is_here = question.owner == self._station.broker
        question.life = self._station.life if is_here else self._lives.get(question.owner, 0)
        line = self._lines[question.line]
        lowest, before = next(iter(line)), 0
        for other in line:
            if other == number:
                break
            before = other
        address = (question.life, self._station.life, number, before, lowest)
        self._mesh.send(question.owner, question.message, address)

    def _wait(self, number: int, question: Placement) -> None:
        self._station.timers.set(("question", number), min(self._station.now + question.wait, question.until))
        question.wait *= 2

    def _finish(self, number: int, pubend: PubendId, outcome: Outcome) -> None:
        """Answers a client. After a refusal nothing that its publisher placed later is asked any more.

        The client will place those batches again, and maybe under other sequences: they must not be
        repeated under the ones that they had.
        """
        question = self._take(number)
        self._station.effects.append(Submitted(question.reply_to, pubend, outcome))
        if outcome.verdict is not Verdict.OK and isinstance(question.message, Pub):
            for other in list(self._lines.get(question.line, ())):
                if other > number:
                    self._end(other, "a batch before it was refused")

    def _end(self, number: int, reason: str) -> None:
        question = self._take(number)
        outcome = _unanswered(question, reason)
        self._station.effects.append(Submitted(question.reply_to, question.message.pubend, outcome))

    def _take(self, number: int) -> Placement:
        question = self._questions.pop(number)
        self._station.timers.cancel(("question", number))
        line = self._lines[question.line]
        del line[number]
        if not line:
            del self._lines[question.line]
        return question


def _unanswered(question: Placement, reason: str) -> Outcome:
    """Nobody knows whether a batch was logged; an opening is repeated in any case."""
    if isinstance(question.message, Pub):
        return Outcome(Verdict.UNCERTAIN, reason, question.message.first)
    return Outcome(Verdict.RETRY, reason)

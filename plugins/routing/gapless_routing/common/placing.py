"""Publishing from any node: where openings and batches are placed, and how they reach the pubend's node (C9).

At the node of a client, `ClientSide` asks: a question is repeated until it is answered or was asked for long enough.
Then its fate is uncertain, and the client has to ask again: the PHB recognises what it had logged after all.

At the node of the pubend, `RequestIntake` submits each question once, in the order in which it was placed. Messages
come late, twice and out of order, and the pubend takes whatever has the next sequence. That is not enough: a client
whose batch was refused for good gives its sequences to the batches behind it, so an old copy of one of those would be
logged a second time under the sequence it had before. Therefore nothing is submitted that its entry was seen to have
given up, and nothing that was sent to a router which has forgotten what it saw since.

Routers share both classes. What they need of their router are two protocols: its state, and its way to other brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, cast

from gapless.core.network.facts import (
    BrokerId,
    OpenRequest,
    Outcome,
    Pub,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
)
from gapless.core.network.frames import Address, Answer
from gapless.core.network.seam import Effect
from gapless.core.network.timer_queue import MILLISECOND, SECOND, TimerQueue
from gapless.core.stream.ticks import PubendId, name_of
from gapless.errors import RemoteProtocolError

REPEAT = 250 * MILLISECOND
"""After how long a question is repeated at first; then after twice as long, and so on."""
ANSWER_LIMIT = 3 * SECOND
"""How long it is asked altogether."""
QUESTIONS_MAX = 4096

REMEMBERED = 1024
"""How many questions of one entry are known to have been asked, and of how many of its publishers."""
ORIGINS = 64
"""How many processes of entries are remembered."""


class PlacingState(Protocol):
    """What placing shares with the router that it is a part of."""

    @property
    def broker(self) -> BrokerId:
        """This broker."""

    @property
    def life(self) -> int:
        """Names this life of the router: what belongs to another life is not answered."""

    @property
    def now(self) -> int:
        """The time of this call, monotonic nanoseconds."""

    @property
    def timers(self) -> TimerQueue:
        """Where ("question", number) is set; the router calls `ClientSide.repeat` when it is due."""

    @property
    def effects(self) -> list[Effect]:
        """What the router is going to do."""

    @property
    def owners(self) -> dict[PubendId, BrokerId]:
        """Where each pubend is, as far as this router knows."""


class PlacingNetwork(Protocol):
    """The way to other brokers, this one among them."""

    def with_role(self, role: str) -> list[BrokerId]:
        """The brokers that have a role, in an order that is the same everywhere."""

    def incarnation(self, broker: BrokerId) -> int | None:
        """Names the process that is at a broker at present; None: nobody is there, as far as this router knows."""

    def life_for(self, broker: BrokerId) -> int:
        """This router's life, as the process at a broker knows it."""

    def send(self, broker: BrokerId, message: OpenRequest | Pub | Answer, address: Address) -> None:
        """Sends a message to a broker; it may be lost."""

    def has_way(self, broker: BrokerId) -> bool:
        """Whether something that is sent to a broker now may arrive, as far as this router knows."""


Line: TypeAlias = "tuple[str, bool, int]"
"""A publisher, whether it is a producer of keyed batches, and its epoch.

Its batches are submitted in order, and the refusal of one speaks for those behind.
"""


def line_of(message: OpenRequest | Pub) -> Line:
    """The line of a batch; the openings of a name are one by themselves, with at most one that is asked.

    A subscription is claimed at each pubend by itself.
    """
    if isinstance(message, OpenRequest) and message.claims:
        return f"{message.pubend} {message.publisher}", message.keyed, -2
    return message.publisher, message.keyed, message.epoch if isinstance(message, Pub) else -1


def misfit(message: OpenRequest | Pub, answer: Answer) -> str:
    """Returns why an answer cannot be that to this question, or "".

    Whoever believed it would tell a publisher of other events than it has sent, and leave it waiting for its own.
    """
    outcome, verdict = answer.outcome, answer.outcome.verdict
    if isinstance(message, OpenRequest):
        if message.pubend and answer.pubend != message.pubend:
            return f"it is of pubend {answer.pubend!r}"
        if verdict is not Verdict.OK or message.ending is not None or message.claims:
            return ""
        return "" if answer.pubend and (outcome.epoch or message.keyed) else "it opens nothing"
    if answer.pubend != message.pubend:
        return f"it is of pubend {answer.pubend!r}"
    count = message.events.count
    last = message.first + count - 1
    if verdict in {Verdict.RESUME, Verdict.RETRY}:
        return "" if outcome.sequence <= last + 1 else f"event {outcome.sequence} was never sent"
    if verdict is not Verdict.OK or not count:
        return ""
    receipts = sum(run.count for run in outcome.ticks)
    if receipts > count or (receipts not in {0, count} and not message.keyed):
        return f"{receipts} receipts for {count} events"
    return "" if message.keyed or outcome.sequence == last else f"it is of event {outcome.sequence}, not of {last}"


@dataclass(slots=True)
class Placement:
    """An opening or a batch that was not answered yet."""

    message: OpenRequest | Pub
    reply_to: Hashable
    owner: BrokerId
    others: list[BrokerId]
    """Whom to ask if the owner says that it takes no such publisher, in order."""
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

    def __init__(self, state: PlacingState, network: PlacingNetwork, number: int = 0) -> None:
        """`number`: above those of all questions that a router of this process has asked before."""
        self._state = state
        self._network = network
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
        if not request.pubend:
            self._ask(request, reply_to, self._candidates(request))
            return
        self._ask(request, reply_to, self._owners(request.pubend, request.node))

    def place(self, pub: Pub, reply_to: Hashable, node: BrokerId) -> None:
        """Places a batch where its publisher is open: at `node`, as far as its session knows."""
        self._ask(pub, reply_to, self._owners(pub.pubend, node))

    def on_answer(self, broker: BrokerId, answer: Answer, address: Address) -> None:
        """The owner's answer, or that it does not know us any more. It may come more than once.

        Raises RemoteProtocolError for an answer to another question than was asked. Who had asked is told so.
        """
        life, number, theirs, taken = address
        assert isinstance(number, int)
        assert isinstance(theirs, int)
        self.on_life(broker, theirs)
        question = self._questions.get(number)
        if question is None or life != self._state.life or broker != question.owner:
            return
        if taken:
            if fault := misfit(question.message, answer):
                text = f"node {broker!r} gave an answer that does not fit: {fault}"
                self._finish(number, question.message.pubend, _unanswered(question, text))
                raise RemoteProtocolError(text)
            self._finish(number, answer.pubend, answer.outcome)
        elif question.life != theirs:
            self._send(number, question)

    def on_life(self, broker: BrokerId, life: int) -> None:
        """What the life of a broker's router is: only what is sent to that one is taken there."""
        self._lives[broker] = life

    def repeat(self, number: int) -> None:
        """A question has waited long enough for its answer: it is repeated, or given up."""
        question = self._questions[number]
        if self._state.now >= question.until:
            why = f"node {question.owner!r}, where the pubend is, does not answer"
            if not self._network.has_way(question.owner):
                why = f"no link leads to node {question.owner!r}, where the pubend is"
            self._finish(number, question.message.pubend, _unanswered(question, why))
        else:
            self._send(number, question)
            self._wait(number, question)

    def forget(self) -> None:
        """As if it had just begun: nobody will answer what was asked before."""
        self._lives.clear()
        for number in list(self._questions):
            self._end(number, "the router has begun anew")

    def _owners(self, pubend: PubendId, node: BrokerId) -> list[BrokerId]:
        owner = self._state.owners.get(pubend)
        if owner is None and node in self._network.with_role("phb"):
            owner = node  # the pubend may be gone: then nobody but its node can say so
        return [] if owner is None else [owner]

    def _candidates(self, request: OpenRequest) -> list[BrokerId]:
        """The brokers for a publisher that is nowhere yet, the first choice first: for one name always, everywhere."""
        hosts = self._network.with_role("phb")
        digest = blake2b(request.publisher.encode(), digest_size=8).digest()
        first = int.from_bytes(digest, "big") % max(1, len(hosts))
        return hosts[first:] + hosts[:first]

    def _ask(self, message: OpenRequest | Pub, reply_to: Hashable, owners: list[BrokerId]) -> None:
        if not owners or len(self._questions) >= QUESTIONS_MAX:
            first = message.first if isinstance(message, Pub) else 0
            outcome = Outcome(Verdict.RETRY, "no broker is known for the pubend at present", first)
            self._state.effects.append(Submitted(reply_to, message.pubend, outcome))
            return
        self._number += 1
        question = Placement(message, reply_to, owners[0], owners[1:], self._state.now + ANSWER_LIMIT)
        self._questions[self._number] = question
        self._lines.setdefault(question.line, {})[self._number] = None
        self._send(self._number, question)
        self._wait(self._number, question)

    def _send(self, number: int, question: Placement) -> None:
        is_here = question.owner == self._state.broker
        question.life = self._state.life if is_here else self._lives.get(question.owner, 0)
        line = self._lines[question.line]
        lowest, before = next(iter(line)), 0
        for other in line:
            if other == number:
                break
            before = other
        address = (question.life, self._state.life, number, before, lowest)
        self._network.send(question.owner, question.message, address)

    def _wait(self, number: int, question: Placement) -> None:
        self._state.timers.set(("question", number), min(self._state.now + question.wait, question.until))
        question.wait *= 2

    def _finish(self, number: int, pubend: PubendId, outcome: Outcome) -> None:
        """Answers a client. After a refusal nothing that its publisher placed later is asked any more.

        The client will place those batches again, and maybe under other sequences: they must not be
        repeated under the ones that they had.
        """
        question = self._take(number)
        if outcome.verdict is Verdict.ELSEWHERE and question.others:
            self._ask(question.message, question.reply_to, question.others)
            return
        self._state.effects.append(Submitted(question.reply_to, pubend, outcome, question.owner))
        if outcome.verdict is not Verdict.OK and isinstance(question.message, Pub):
            for other in list(self._lines.get(question.line, ())):
                if other > number:
                    self._end(other, "a batch before it was refused")

    def _end(self, number: int, reason: str) -> None:
        question = self._take(number)
        outcome = _unanswered(question, reason)
        self._state.effects.append(Submitted(question.reply_to, question.message.pubend, outcome))

    def _take(self, number: int) -> Placement:
        question = self._questions.pop(number)
        self._state.timers.cancel(("question", number))
        line = self._lines[question.line]
        del line[number]
        if not line:
            del self._lines[question.line]
        return question


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

    def __init__(self, state: PlacingState, network: PlacingNetwork, pubends: Collection[PubendId]) -> None:
        self._state = state
        self._network = network
        self._pubends = pubends
        self._origins: dict[tuple[BrokerId, int], Origin] = {}

    def on_request(self, broker: BrokerId, message: OpenRequest | Pub, address: Address) -> None:
        """An opening or a batch.

        The address: our life as the entry knows it, the entry's own, the question's number, that of the one
        that is to be submitted before it, and the lowest of its line that the entry waits for.
        """
        ours, theirs, number, before, floor = cast("tuple[int, int, int, int, int]", address)
        sender = (broker, self._network.incarnation(broker) or 0, theirs)
        if ours != self._network.life_for(broker):  # of ours, or of the entry's, that is over
            self._answer(sender, number, _put_off(message, "the router has begun anew"), taken=False)
            return
        origin, line = self._origin(sender), line_of(message)
        origin.raise_floor(line, floor)
        if origin.waits_for(before, number, line) and not self._may_overtake():
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
        elif not self._may_be_judged(message.pubend):
            self._answer(sender, number, _put_off(message, "the pubend is not open (yet)"))
        else:
            origin.asked[number] = None
            _shorten(origin.asked)
            self._submit(sender, number, message)

    def _may_be_judged(self, pubend: PubendId) -> bool:
        """Whether the host here can answer for a pubend, which may be "": it is open, or another incarnation of it is.

        If another one is, this one is gone, and only its host can say so: the router would ask for it for ever.
        """
        if not pubend or pubend in self._pubends:
            return bool(self._pubends)
        return any(name_of(pubend) == name_of(open_here) for open_here in self._pubends)

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

    def forget(self) -> None:
        """As if it had just begun; the router's life is another one now."""
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
        submit = Submit if isinstance(message, Pub) else SubmitOpen
        self._state.effects.append(submit(message, (sender, number)))  # type: ignore[arg-type]

    def _may_overtake(self) -> bool:
        """Whether a question is taken up before the one that should come before it: for simulations."""
        return False

    def _answer(self, sender: From, number: int, answer: Answer, *, taken: bool = True) -> None:
        """Answers the entry, unless another process is there now."""
        broker, incarnation, life = sender
        if self._network.incarnation(broker) == incarnation:
            self._network.send(broker, answer, (life, number, self._network.life_for(broker), int(taken)))


def _shorten(table: dict[Any, Any]) -> None:
    if len(table) > REMEMBERED:
        del table[next(iter(table))]


def _put_off(message: OpenRequest | Pub, reason: str) -> Answer:
    sequence = message.first if isinstance(message, Pub) else 0
    return Answer(message.pubend, Outcome(Verdict.RETRY, reason, sequence))


def _unanswered(question: Placement, reason: str) -> Outcome:
    """Nobody knows whether a batch was logged; an opening is repeated in any case."""
    if isinstance(question.message, Pub):
        return Outcome(Verdict.UNCERTAIN, reason, question.message.first)
    return Outcome(Verdict.RETRY, reason)

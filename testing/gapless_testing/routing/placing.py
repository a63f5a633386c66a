"""Whether every opening and every batch ends once, and as a PHB said (C9)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from gapless.core.network.facts import BrokerId, OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless.core.stream.ticks import PubendId, Tick
from gapless_testing.routing.breaches import Clause, ContractError

Asked: TypeAlias = "OpenRequest | Pub"
Said: TypeAlias = "tuple[PubendId, Outcome]"

AS_SAID = (Verdict.OK, Verdict.FENCED, Verdict.RESUME, Verdict.FORGOTTEN)
"""What only a PHB can know. The other verdicts a router may give by itself."""


@dataclass(slots=True)
class Call:
    """An opening or a batch that a client's session handed to a router."""

    asked: Asked
    orphaned: bool = False
    """The router that was asked is gone: it may still end, and need not."""


@dataclass(slots=True)
class _Attempt:
    """The same thing, whoever asked for it and however often."""

    asked: list[Asked] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)


class _Openings:
    """Those of one name at one broker: the order in which they were placed, and how far they were submitted."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, list[int]] = {}
        self._count = 0
        self._reached = 0

    def place(self, opening: Hashable) -> None:
        """An instance opens the publisher, or asks for it once more."""
        self._count += 1
        self._numbers.setdefault(opening, []).append(self._count)

    def submit(self, opening: Hashable) -> bool:
        """A PHB is asked to. False: each time it was placed, another one that was placed later is submitted already."""
        if opening not in self._numbers:
            return True
        following = [number for number in self._numbers[opening] if number >= self._reached]
        self._reached = min(following, default=self._reached)
        return bool(following)


@dataclass(slots=True)
class _Submission:
    """What a router last handed to its PHB under one address."""

    key: Hashable
    unanswered: int = 0


class Placings:
    """Everything that was ever asked to be placed in a network."""

    def __init__(self) -> None:
        self._open: dict[BrokerId, dict[Hashable, Call]] = {}
        self._attempts: dict[Hashable, _Attempt] = {}
        self._submitted: dict[tuple[BrokerId, Hashable], _Submission] = {}
        self._logged: dict[tuple[PubendId, tuple[str, int | None], int], Tick] = {}
        self._openings: dict[tuple[str, bool], dict[BrokerId, _Openings]] = {}

    def ask(self, broker: BrokerId, asked: Asked, reply_to: Hashable) -> None:
        """A session asks a router. Raises ContractError (CORES) if it uses one address for two things."""
        waiting = self._open.setdefault(broker, {})
        if reply_to in waiting:
            raise ContractError(Clause.CORES, f"{reply_to!r} already waits for an answer")
        waiting[reply_to] = Call(asked)
        key = _key(asked)
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = self._attempts[key] = _Attempt()
        if not any(_equal(asked, before) for before in attempt.asked):
            attempt.asked.append(asked)
        if isinstance(asked, OpenRequest):
            self._openings.setdefault((asked.publisher, asked.keyed), {}).setdefault(broker, _Openings()).place(key)

    def submit(self, broker: BrokerId, asked: Asked, reply_to: Hashable) -> None:
        """A router hands it to its PHB: only what was asked, and as it was. None: nobody waits for the answer."""
        key = _key(asked)
        attempt = self._attempts.get(key)
        if attempt is None or not any(_equal(asked, before) for before in attempt.asked):
            raise _breach(f"{_name(asked)} is submitted, and nobody asked for it")
        if isinstance(asked, OpenRequest):
            self._check_order(asked)
        if reply_to is None:
            return
        submission = self._submitted.get((broker, reply_to))
        if submission is None:
            submission = self._submitted[broker, reply_to] = _Submission(key)
        if submission.key != key and submission.unanswered:
            # Its answer would be taken for this one's: a router that comes back must not use old addresses anew.
            raise _breach(f"{_name(asked)} is submitted under {reply_to!r}, where another answer is on its way")
        submission.key = key
        submission.unanswered += 1

    def _check_order(self, asked: OpenRequest) -> None:
        """An instance fences those before it: one that is over must not come behind the one in its place."""
        brokers = self._openings[asked.publisher, asked.keyed].values()
        if not all(openings.submit(_key(asked)) for openings in brokers):
            raise _breach(f"{_name(asked)} by {asked.instance!r} is submitted behind one that was placed later")

    def answer(self, broker: BrokerId, reply_to: Hashable, pubend: PubendId, outcome: Outcome) -> None:
        """A PHB says how it ended."""
        if reply_to is None:
            return
        submission = self._submitted.get((broker, reply_to))
        if submission is None or not submission.unanswered:
            raise ContractError(Clause.CORES, f"{reply_to!r} is answered, and was not submitted")
        submission.unanswered -= 1
        attempt = self._attempts[submission.key]
        said = pubend, _plain(outcome)
        if said not in attempt.said:
            attempt.said.append(said)
        if outcome.verdict is Verdict.OK and isinstance(attempt.asked[0], Pub):
            self._log(attempt.asked[0], pubend, outcome)
        elif outcome.verdict is Verdict.FORGOTTEN:  # its sequences begin anew
            gone = attempt.asked[0].publisher, None
            self._logged = {place: tick for place, tick in self._logged.items() if place[1] != gone}

    def _log(self, pub: Pub, pubend: PubendId, outcome: Outcome) -> None:
        ticks = [run.first + run.step * position for run in outcome.ticks for position in range(run.count)]
        # Of a keyed batch that repeats another one in part, the last events alone are logged, and have ticks.
        for sequence, tick in enumerate(ticks, pub.first + pub.events.count - len(ticks)):
            # The keys of another epoch are other ones; other sequences run on across epochs.
            line = pub.publisher, pub.epoch if pub.keyed else None
            if self._logged.setdefault((pubend, line, sequence), tick) != tick:
                raise ContractError(Clause.CORES, f"{pubend} logged sequence {sequence} of {pub.publisher} twice")

    def forget_logged(self, pubend: PubendId, lo: Tick, hi: Tick) -> None:
        """What was logged in (lo, hi] counts as never sent: its sequences may be used again."""
        self._logged = {
            place: tick for place, tick in self._logged.items() if place[0] != pubend or not lo < tick <= hi
        }

    def end(self, broker: BrokerId, placed: Submitted) -> None:
        """A router says how it ended: once, and no more than a PHB said."""
        call = self._open.get(broker, {}).pop(placed.reply_to, None)
        if call is None:
            raise _breach(f"{placed.reply_to!r} is answered, and nothing waits there (any more)")
        outcome = placed.outcome
        if outcome.verdict in AS_SAID:
            if (placed.pubend, _plain(outcome)) not in self._attempts[_key(call.asked)].said:
                raise _breach(f"{_name(call.asked)} ended with {outcome} at {placed.pubend!r}, which no PHB said")
        elif outcome.ticks:
            raise _breach(f"{_name(call.asked)} ended with {outcome}, which has ticks")

    def forget_router(self, broker: BrokerId) -> None:
        """The router is another one now: what waits there may be answered, and need not."""
        for call in self._open.get(broker, {}).values():
            call.orphaned = True

    def forget_broker(self, broker: BrokerId) -> None:
        """The broker's process is another one now: nobody waits there any more."""
        self._open.pop(broker, None)
        for key in [key for key in self._submitted if key[0] == broker]:
            del self._submitted[key]

    def forget_order(self, broker: BrokerId) -> None:
        """The broker's volume is another one now, so nobody there knows which process came before which."""
        for openings in self._openings.values():
            openings.pop(broker, None)

    def check_ended(self) -> None:
        """Raises ContractError if anything is still open. For the end, when nothing is on its way."""
        for broker, waiting in self._open.items():
            for call in waiting.values():
                if not call.orphaned:
                    raise _breach(f"{_name(call.asked)} was never answered at {broker!r}")


def _breach(what: str) -> ContractError:
    return ContractError(Clause.PLACE, what)


def _key(asked: Asked) -> Hashable:
    if isinstance(asked, Pub):
        return "pub", asked.pubend, *asked.identity
    return "open", asked.publisher, asked.keyed, asked.instance, asked.attempt, asked.ending


def _name(asked: Asked) -> str:
    if isinstance(asked, Pub):
        return f"the batch from {asked.first} on of {asked.publisher!r}"
    return f"{'opening' if asked.ending is None else 'the end of opening'} {asked.attempt} of {asked.publisher!r}"


def _equal(asked: Asked, before: Asked) -> bool:
    if isinstance(asked, Pub) and isinstance(before, Pub):
        columns, others = asked.events, before.events
        same = (columns.count, columns.lengths, columns.blob) == (others.count, others.lengths, others.blob)
        return same and (asked.tokens, asked.principal) == (before.tokens, before.principal)
    if isinstance(asked, OpenRequest) and isinstance(before, OpenRequest):
        # A router may know where a publisher is to be opened when the client does not.
        return asked == before or (not before.pubend and replace(asked, pubend="") == before)
    return False


def _plain(outcome: Outcome) -> Outcome:
    """The outcome without what does not matter: the words, and what kind of sequence the ticks are."""
    return replace(outcome, reason="", ticks=tuple(outcome.ticks))

"""Answers how far there is something to read, and from where on (protocol: ranges).

A head is final: every tick up to it is decided, and never changes. Three rules follow from how heads are answered:

- A head is answered before this broker has durably reached it. So after a crash its heads may be lower. A request with
  a position therefore never gets an answer below that position.
- An application may know of events that were published before it asked. So the answer waits until the head has come as
  far as the pubend was known to be at that time.
- Nor may it miss a pubend that was heard of before it asked: its answer waits until that counts this broker, and says
  where the subscription begins there.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.ports import ClientSession
from gapless.core.principals import Principal
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import AskEarliest, AskHeads, Position, Ticks
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.catch_up.fetches import RangeFetch
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.subscriptions.checks import (
    called,
    check_positions,
    found_for_ranges,
    may_know,
    removed,
    tell_ticks,
)

_MILLISECOND = 1_000_000
_PATIENCE = 1000 * _MILLISECOND
"""How long an answer waits for the head to come that far. Then the present head is answered."""
_FINDING = 5000 * _MILLISECOND
"""How long an answer waits for a pubend that is being found. Then it is answered without that."""


@dataclass(slots=True, eq=False)
class HeadsQuestion:
    """A request that is answered when there is something to read, or at a time."""

    session: int
    who: Principal
    request: AskHeads
    subscription: SubscriptionRecord | None
    until: int
    patience: int
    upto: dict[PubendId, Tick]
    """How far each pubend was known to be when the request came."""
    found_until: int
    """Until when it waits for pubends that are being found."""
    announced: frozenset[PubendId]
    """The pubends of which was heard, not long before the request came, and that did not count this broker then."""


class Heads:
    """Answers AskHeads."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._waiting: list[HeadsQuestion] = []

    def on_ask(self, session: ClientSession, request: AskHeads, now: int) -> None:
        """Answers at once, or later. Raises RefusedError."""
        subscription = None if request.target is None else found_for_ranges(self._hosting, session, request.target)
        who = called(None if subscription is None else subscription.name)
        check_positions(request.after or (), self._hosting, who, now)
        until = now + request.wait_ms * _MILLISECOND
        upto = {pubend: stream.told_upto for pubend, stream in self._hosting.streams.items()}
        patience, found_until = max(until, now + _PATIENCE), max(until, now + _FINDING)
        announced = frozenset(pubend for pubend, at in self._hosting.announced.items() if now - at < _FINDING)
        waiting = HeadsQuestion(
            session.number, session.principal, request, subscription, until, patience, upto, found_until, announced
        )
        if not self._answer(waiting, now):
            self._waiting.append(waiting)
            self._hosting.session_ends.add(session.number, waiting, lambda _now, _wall: self._waiting.remove(waiting))

    def of(self, subscription: SubscriptionRecord, after: dict[PubendId, Tick]) -> dict[PubendId, Tick]:
        """Returns the heads for a subscription. If there is nothing for it after its position, that is its position.

        A pubend is left out that has yet to find where the subscription starts there.
        """
        heads: dict[PubendId, Tick] = {}
        for pubend, stream in self._hosting.streams.items():
            if not _is_placed(stream, subscription):
                continue
            behind = after.get(pubend, stream.positions[subscription.sid].acked)
            moved = _has_something(stream, subscription.sid, behind)
            heads[pubend] = max(behind, stream.client_position(stream.head)) if moved else behind
        return heads

    @property
    def deadline(self) -> int | None:
        """When a request has to be answered at the latest."""
        return min(map(self._due, self._waiting), default=None)

    def _due(self, waiting: HeadsQuestion) -> int:
        if not self._is_found(waiting):
            return waiting.found_until
        return waiting.until if self._is_fresh(waiting) else waiting.patience

    def answer_ready(self, now: int) -> None:
        """Answers the requests that can be answered now, after an event or a deadline."""
        for waiting in [waiting for waiting in self._waiting if self._answer(waiting, now)]:
            self._waiting.remove(waiting)
            self._hosting.session_ends.remove(waiting.session, waiting)

    def _answer(self, waiting: HeadsQuestion, now: int) -> bool:
        request, subscription = waiting.request, waiting.subscription
        if subscription is not None and self._hosting.registry.get(subscription.sid) is not subscription:
            self._hosting.tell(waiting.session, removed().answer(request.request))
            return True
        if not self._is_found(waiting) and now < waiting.found_until:
            return False
        if not self._is_fresh(waiting) and now < waiting.patience:
            return False
        after = {position.pubend: position.tick for position in request.after or ()}
        if subscription is None or request.after is None:
            heads = {
                pubend: max(after.get(pubend, 0), stream.client_position(stream.head))
                for pubend, stream in self._hosting.streams.items()
                if self._may_be_told(waiting, stream)
            }
        else:
            heads = self.of(subscription, after)
        moved = any(tick > after.get(pubend, -1) for pubend, tick in heads.items())
        if not moved and now < waiting.until:
            return False
        positions = [Position(pubend, tick) for pubend, tick in heads.items()]
        tell_ticks(self._hosting, waiting.session, waiting.who, subscription, Ticks(request.request, positions))
        return True

    def _may_be_told(self, waiting: HeadsQuestion, stream: Constream) -> bool:
        if waiting.subscription is not None:
            return _is_placed(stream, waiting.subscription)
        return may_know(self._hosting, waiting.who, stream)

    def _is_found(self, waiting: HeadsQuestion) -> bool:
        """Whether each pubend that was heard of counts this broker, and it is known where the subscription begins."""
        streams, subscription = self._hosting.streams, waiting.subscription
        return waiting.announced <= streams.keys() and (
            subscription is None or all(_is_placed(stream, subscription) for stream in streams.values())
        )

    def _is_fresh(self, waiting: HeadsQuestion) -> bool:
        """Whether each pubend was heard of in this life, or is gone, and its head is where it was known to be."""
        streams = self._hosting.streams
        return all(
            (streams[pubend].meta.stable or streams[pubend].gone_upto) and streams[pubend].head >= tick
            for pubend, tick in waiting.upto.items()
        )


def _is_placed(stream: Constream, subscription: SubscriptionRecord) -> bool:
    """Whether it is known where a subscription begins."""
    return not stream.positions[subscription.sid].sought


def _has_something(stream: Constream, sid: int, behind: Tick) -> bool:
    """Whether there may be something for a subscription after a position: an event, or unknown ticks."""
    position = stream.positions[sid]
    low, silent_upto = stream.silent(position)
    if low <= behind < silent_upto:
        behind = silent_upto
    return stream.head > behind and max(position.since, stream.pfs.chopped, position.last_tick) > behind


class FirstTicks:
    """A question about the first ticks that a pubend may still have: its answer says how much it has lost."""

    def __init__(self, pubend: PubendId, start: Tick, end: Tick) -> None:
        self.start = start
        self._fetch = RangeFetch(pubend, start, end, BatchMatcher())

    @property
    def is_known(self) -> bool:
        """Whether there is an answer."""
        return self._fetch.complete

    def ranges(self) -> Ranges:
        """Returns what has to be asked for."""
        return self._fetch.ranges()

    def offer(self, knowledge: Knowledge, _cut: Ranges) -> None:
        """Takes RAW knowledge that has arrived."""
        self._fetch.offer(knowledge)

    def forget(self, lo: Tick, hi: Tick) -> Ranges:
        """What was told of (lo, hi] does not hold any more. Returns what is missing."""
        self._fetch.forget(lo, hi)
        return self._fetch.ranges()


@dataclass(slots=True, eq=False)
class EarliestQuestion:
    """A request for the earliest positions."""

    session: int
    who: Principal
    request: int
    subscription: SubscriptionRecord | None
    until: int
    open: dict[PubendId, FirstTicks]
    """What was asked of pubends."""
    found: dict[PubendId, Tick]


class Earliest:
    """Answers AskEarliest: asks each pubend for its first ticks.

    For a pubend that does not answer, the last known `lost` is taken.
    """

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._questions: list[EarliestQuestion] = []

    def on_ask(self, session: ClientSession, request: AskEarliest, now: int) -> None:
        """Asks the pubends. Raises RefusedError."""
        subscription = None if request.target is None else found_for_ranges(self._hosting, session, request.target)
        question = EarliestQuestion(
            session.number, session.principal, request.request, subscription, now + _PATIENCE, {}, {}
        )
        for pubend, stream in self._hosting.streams.items():
            first = stream.beginning(stream.lost)
            if first >= stream.head:
                question.found[pubend] = first
                continue
            asked = question.open[pubend] = FirstTicks(pubend, first, min(first + stream.meta.spacing, stream.head))
            stream.scheduler.join(asked)
            stream.scheduler.fetch(asked.ranges(), now)
        self._questions.append(question)
        self._hosting.session_ends.add(session.number, question, lambda _now, _wall: self._drop(question))
        self.answer_ready(now)

    @property
    def deadline(self) -> int | None:
        """When a request has to be answered at the latest."""
        return min((question.until for question in self._questions), default=None)

    def answer_ready(self, now: int) -> None:
        """Answers the requests that every pubend has answered, and those that have taken too long."""
        for question in list(self._questions):
            if now >= question.until or all(first.is_known for first in question.open.values()):
                self._drop(question)
                for pubend, first in question.open.items():
                    question.found[pubend] = max(first.start, self._hosting.streams[pubend].lost)
                self._answer(question)

    def _drop(self, question: EarliestQuestion) -> None:
        self._questions.remove(question)
        self._hosting.session_ends.remove(question.session, question)
        for pubend, first in question.open.items():
            self._hosting.streams[pubend].scheduler.leave(first)

    def _answer(self, question: EarliestQuestion) -> None:
        subscription = question.subscription
        if subscription is not None and self._hosting.registry.get(subscription.sid) is not subscription:
            self._hosting.tell(question.session, removed().answer(question.request))
            return
        lost = {pubend: self._hosting.streams[pubend].client_position(tick) for pubend, tick in question.found.items()}
        streams, who = self._hosting.streams, question.who
        positions = [
            Position(pubend, tick if subscription is None else self._readable_from(pubend, subscription.sid, tick))
            for pubend, tick in lost.items()
            if subscription is not None or may_know(self._hosting, who, streams[pubend])
        ]
        tell_ticks(self._hosting, question.session, question.who, subscription, Ticks(question.request, positions))

    def _readable_from(self, pubend: PubendId, sid: int, lost: Tick) -> Tick:
        """Returns from where a subscription meets no gap.

        Ticks that it is done with are silence, even if they are lost.
        """
        stream = self._hosting.streams[pubend]
        position = stream.positions[sid]
        low, silent_upto = stream.silent(position)
        return min(lost, low) if lost <= silent_upto else lost

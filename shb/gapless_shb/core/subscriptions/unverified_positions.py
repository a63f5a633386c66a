"""Handles positions ahead of all that this SHB knows of a pubend: most are right, some are impossible (T11, U03).

Why a right position may be ahead: the application has come further than an SHB that crashed, or than the SHB that it
now comes to. The head will reach that position soon.

Why an impossible one must be refused: a consumer at a position that no event will ever reach would never get anything.

The two look the same here, and no clock helps. So the SHB asks the PHB how far it is:

1. It sends its row of holds again, under a new version.
2. The PHB's answer carries its `stable`. No position that was handed out before the question lies above it.
3. A position above it is refused. The others go on.

While the PHB is away the position waits. That costs nothing, because no events arrive then, either.

A start by time may lie in the future. It stands right before a whole millisecond, where no event ever stands. So a
token with such a position may be ahead for any reason, and it is never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import Held
from gapless.core.ports import ClientSession, RequestHandler
from gapless.core.stream.ticks import FOREVER, MILLISECOND, PubendId, Tick
from gapless.core.wire.messages import Acknowledged, Attach, Code, Detached, Position, Subscribe
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.subscriptions.checks import called, lost_data
from gapless_shb.core.subscriptions.waiting import Reason, Waiting, WaitingRequest

AnyPosition = TypeVar("AnyPosition", Position, Acknowledged)
Then: TypeAlias = "Callable[[int, int], None]"
"""(now, wall)"""


class BeyondError(Exception):
    """It is not known yet whether a request can be granted: one of its positions is ahead of all that is known here."""

    def __init__(self, position: Position | Acknowledged, who: str) -> None:
        super().__init__(f"{who} stands ahead of everything known of {position.pubend}")
        self.position = position
        self.who = who


@dataclass(slots=True)
class UnverifiedPosition:
    """A position that may be impossible."""

    tick: Tick
    who: str
    """Whose position it is, for the text of the error."""
    good: Then
    refuse: Callable[[RefusedError, int, int], None]
    """(why, now, wall)"""
    waiting: WaitingRequest | None = None
    """The request that waits for the answer: the doubt ends with that."""
    consumer: Consumer | None = None
    """The consumer that it is about: the doubt ends with that. Neither: nobody can end it."""
    version: int | None = None
    """The version of the row of holds with which the PHB was asked; None if it was not asked yet."""


class UnverifiedPositions:
    """All doubts of an SHB."""

    def __init__(self, hosting: Hosting, waiting: Waiting, end: Callable[[int, int, int], None]) -> None:
        """`end` (subscription, now, wall): ends the consumption of a subscription; its consumer has been informed."""
        self._hosting = hosting
        self._waiting = waiting
        self._end = end
        self.doubts: dict[PubendId, list[UnverifiedPosition]] = {}
        """The positions in doubt. News of a pubend matters only if it is in here."""

    # ------------------------------------------------------------------------------- who is looked at

    def is_beyond(self, pubend: PubendId, tick: Tick) -> bool:
        """Whether a position is ahead of everything that this SHB knows, by more than one place of events.

        A position may be that much ahead because of `Constream.behind`. Of a pubend that is gone nobody can say how far
        it was, and no event will be there: no position is too far.
        """
        stream = self._hosting.streams.get(pubend)
        if stream is None or stream.gone_upto or tick <= stream.told_upto + stream.meta.spacing:
            return False
        return tick == FOREVER or not stream.meta.timed or (tick + 1) % MILLISECOND != 0

    def check(self, positions: Iterable[Position | Acknowledged], who: str) -> None:
        """Raises BeyondError for a position that has to be judged first."""
        for position in positions:
            if self.is_beyond(position.pubend, position.tick):
                raise BeyondError(position, who)

    def news(self, subscription: SubscriptionRecord, positions: Iterable[AnyPosition]) -> list[AnyPosition]:
        """Returns the positions above what a subscription has acknowledged, on pubends that are known here.

        Raises BeyondError for one that has to be judged first.
        """
        streams, sid = self._hosting.streams, subscription.sid
        news = [
            position
            for position in positions
            if position.pubend in streams and position.tick > streams[position.pubend].positions[sid].acked
        ]
        self.check(news, called(subscription.name))
        return news

    def put_off(
        self, session: ClientSession, request: Any, beyond: BeyondError, again: RequestHandler, now: int
    ) -> None:
        """Lets a request wait until its position is judged. Then it is handled again, or refused."""
        waiting = self._waiting.put(Reason.POSITION, session, request, again)
        good = partial(self._waiting.go_on, waiting)
        doubt = UnverifiedPosition(
            beyond.position.tick, beyond.who, good, lambda why, _now, _wall: self._waiting.refuse(waiting, why), waiting
        )
        self._add(beyond.position.pubend, doubt, now)

    def give_up(self, client_id: str, name: str) -> None:
        """Refuses requests that wait to create a subscription which a client removes now."""
        for waiting in [waiting for waiting in self._waiting if waiting.reason is Reason.POSITION]:
            request = waiting.request
            if isinstance(request, Subscribe | Attach) and (waiting.session.client_id, request.name or "") == (
                client_id,
                name,
            ):
                self._waiting.refuse(waiting, RefusedError(Code.NOT_FOUND, f"{called(name)} was removed"))

    def watch(self, consumer: Consumer, at: Mapping[PubendId, Tick], now: int) -> None:
        """A consumer goes on from these positions. It is served at once; if one of them is impossible, it is detached.

        The start of its subscription is not in doubt: it was judged when the subscription was created or recovered.
        """
        for pubend, tick in at.items():
            position = self._hosting.streams[pubend].positions[consumer.sid]
            if tick != position.start and self.is_beyond(pubend, tick):
                doubt = UnverifiedPosition(tick, _name(consumer), _nothing, self._refusing(consumer), consumer=consumer)
                self._add(pubend, doubt, now)

    def acknowledge(self, consumer: Consumer, said: Acknowledged, now: int) -> None:
        """The application acknowledges everything up to a position. An impossible position never counts.

        For an impossible one the consumer is detached with the reason. If the consumer leaves before the position is
        judged, and it is possible, the acknowledgement still counts.
        """
        stream = self._hosting.streams.get(said.pubend)
        position = None if stream is None else stream.positions.get(consumer.sid)
        if stream is None or position is None:
            return
        if said.tick <= position.acked or not self.is_beyond(said.pubend, said.tick):
            stream.acknowledge(consumer.sid, said.tick, said.event)
            return

        def take(_now: int, _wall: int) -> None:
            stream.acknowledge(consumer.sid, said.tick, said.event)

        self._add(said.pubend, UnverifiedPosition(said.tick, _name(consumer), take, self._refusing(consumer)), now)

    def judge(self, consumer: Consumer, said: Acknowledged, good: Then, now: int) -> None:
        """A consumer's position is beyond what is known: once it is judged and possible, `good` is called."""
        self._add(
            said.pubend,
            UnverifiedPosition(said.tick, _name(consumer), good, self._refusing(consumer), consumer=consumer),
            now,
        )

    def look_back(self, now: int) -> None:
        """Judges recovered positions: earlier versions of this broker took any position, even an impossible one."""
        for stream in self._hosting.streams.values():
            for sid in stream.positions:
                self.look_at(stream, sid, now)

    def look_at(self, stream: Constream, sid: int, now: int) -> None:
        """Judges where a subscription stands, and moves the position back if no consumer can have come there."""
        position, subscription = stream.positions[sid], self._hosting.registry.get(sid)
        tick = max(position.acked, position.start)
        if subscription is None or not self.is_beyond(stream.pubend, tick):
            return

        def put_right(why: RefusedError, now: int, wall: int) -> None:
            if self._hosting.registry.get(sid) is subscription:
                self._move_back(stream, subscription, str(why))
                consumer = self._hosting.consumers.get(sid)
                if consumer is not None:
                    self._refusing(consumer)(why, now, wall)

        self._add(stream.pubend, UnverifiedPosition(tick, called(subscription.name), _nothing, put_right), now)

    # ------------------------------------------------------------------------------ what the pubend sends

    def on_heard(self, stream: Constream, now: int, wall: int) -> None:
        """News of a pubend: positions that it has reached are good; about the others its PHB is asked."""
        for doubt in self._take(stream.pubend, lambda doubt: not self.is_beyond(stream.pubend, doubt.tick)):
            if stream.is_lost(doubt.tick):
                doubt.refuse(RefusedError(Code.TOKEN_AHEAD, lost_data(doubt.who, stream.pubend)), now, wall)
            else:
                doubt.good(now, wall)
        self._ask(stream, now)

    def on_held(self, stream: Constream, held: Held, now: int, wall: int) -> None:
        """The PHB has answered how far it is.

        Positions above that are refused if they were in doubt when it was asked.
        """
        stream.catch_up(held.stable, now)
        self.on_heard(stream, now, wall)
        for doubt in self._take(stream.pubend, lambda doubt: (doubt.version or FOREVER) <= held.version):
            reason = (
                f"{doubt.who} stands ahead of everything that {stream.pubend} has: the token was not handed out by "
                "this broker, or the broker has lost data since"
            )
            doubt.refuse(RefusedError(Code.TOKEN_AHEAD, reason), now, wall)

    # -------------------------------------------------------------------------------------- how it is done

    def _is_over(self, doubt: UnverifiedPosition) -> bool:
        """Whether nobody waits for the answer any more."""
        if doubt.waiting is not None:
            return not doubt.waiting.waits
        return doubt.consumer is not None and self._hosting.consumers.get(doubt.consumer.sid) is not doubt.consumer

    def _add(self, pubend: PubendId, doubt: UnverifiedPosition, now: int) -> None:
        self._take(pubend, self._is_over)
        self.doubts.setdefault(pubend, []).append(doubt)
        self._ask(self._hosting.streams[pubend], now)

    def _take(self, pubend: PubendId, is_over: Callable[[UnverifiedPosition], bool]) -> list[UnverifiedPosition]:
        """Takes out the doubts that are over."""
        over: list[UnverifiedPosition] = []
        rest: list[UnverifiedPosition] = []
        for doubt in self.doubts.pop(pubend, []):
            (over if is_over(doubt) else rest).append(doubt)
        if rest:
            self.doubts[pubend] = rest
        return over

    def _ask(self, stream: Constream, now: int) -> None:
        """Asks the PHB about new doubts, once it was heard of in this life; before, everything seems to be ahead."""
        self._take(stream.pubend, self._is_over)
        unasked = [doubt for doubt in self.doubts.get(stream.pubend, []) if doubt.version is None]
        if not unasked or not stream.meta.stable:
            return
        if stream.holds.durable == stream.holds.version:  # otherwise a row is about to be sent, which asks as well
            stream.holds.say_again(now)
            self._hosting.write_holds(stream)
        for doubt in unasked:
            doubt.version = stream.holds.version

    def _refusing(self, consumer: Consumer) -> Callable[[RefusedError, int, int], None]:
        def refuse(why: RefusedError, now: int, wall: int) -> None:
            if self._hosting.consumers.get(consumer.sid) is consumer:
                self._hosting.tell(consumer.channel.session, Detached(consumer.sid, why.code, str(why)))
                self._end(consumer.sid, now, wall)

        return refuse

    def _move_back(self, stream: Constream, subscription: SubscriptionRecord, reason: str) -> None:
        pubend, upto = stream.pubend, stream.client_position(stream.told_upto)
        stream.move_back(subscription.sid, upto, subscription.version)
        if subscription.start.get(pubend, 0) > upto:
            subscription.start = {**subscription.start, pubend: upto}
            self._hosting.outbox.write(self._hosting.registry.save(subscription))
        text = f"{reason}; it goes on from what is published now"
        about = f"{subscription.client_id}/{subscription.name}"
        self._hosting.outbox.emit(Alarm(AlarmCode.SUBSCRIPTION_MOVED, text, about))


def _name(consumer: Consumer) -> str:
    return called(consumer.subscription.name)


def _nothing(_now: int, _wall: int) -> None:
    """The position is possible; nothing is to be done."""

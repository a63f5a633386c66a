"""Positions ahead of everything that this SHB was told of a pubend: most are right, and some can never be (T11, U03).

An application may have come further than an SHB that crashed, or than the one that it comes to; then the head reaches
its position soon. A position that nobody can have been handed out would be waited for in vain: whoever stands there is
never sent anything again. Neither can be told from the other by what is known here, nor by any clock. So the PHB is
asked how far it is, by saying the row of holds again under a new version: nothing that anybody was told before lies
above what its answer names. As long as the PHB is away, the position waits: then nobody is sent anything anyway.

A start by time may be a time to come. It stands right before a whole millisecond, where no event ever does; so a token
with such a position may always be ahead, and is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import Held
from gapless.core.ports import ClientSession
from gapless.core.stream.ticks import FOREVER, MILLISECOND, PubendId, Tick
from gapless.core.wire.messages import Acknowledged, Attach, Code, Detached, Position, Subscribe
from gapless_shb.core.admission import RefusedError, called, lost_data
from gapless_shb.core.constream import Constream
from gapless_shb.core.consumers import Consumer
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.subscriptions import SubscriptionRecord

Then: TypeAlias = "Callable[[int, int], None]"
"""(now, wall)"""


class BeyondError(Exception):
    """Whether a request can be granted is not known yet: one of its positions is ahead of all that is known here."""

    def __init__(self, position: Position, who: str) -> None:
        super().__init__(f"{who} stands ahead of everything known of {position.pubend}")
        self.position = position
        self.who = who


@dataclass(slots=True)
class Doubt:
    """A position that may be one that nobody was ever handed out."""

    tick: Tick
    who: str
    """Whose position it is, for the error."""
    good: Then
    refuse: Callable[[RefusedError, int, int], None]
    """(why, now, wall)"""
    session: int | None
    """Where the answer goes: once that session is over, nobody waits for it. None: it is not asked for a client."""
    creates: tuple[str, str] | None = None
    """The client id and the name of the subscription that a request is about, which does not exist yet."""
    version: int | None = None
    """Under which version of the holds the PHB was asked; None: it was not asked yet."""


class PositionsAhead:
    """All doubts of an SHB."""

    def __init__(self, hosting: Hosting, end: Callable[[int, int, int], None]) -> None:
        """`end` (subscription, now, wall) ends the consumption of a subscription whose consumer was told why."""
        self._hosting = hosting
        self._end = end
        self.doubts: dict[PubendId, list[Doubt]] = {}
        """The positions in doubt: only pubends that have some need to be looked at when they are heard of."""

    # ------------------------------------------------------------------------------- who is looked at

    def is_beyond(self, pubend: PubendId, tick: Tick) -> bool:
        """Whether a position is ahead of everything that this SHB was told: by more than to the next event's place.

        As far ahead as that a position may be told (`Constream.behind`).
        """
        stream = self._hosting.streams.get(pubend)
        if stream is None or tick <= stream.told_upto + stream.meta.spacing:
            return False
        return tick == FOREVER or not stream.meta.timed or (tick + 1) % MILLISECOND != 0

    def check(self, positions: Iterable[Position], who: str) -> None:
        """Raises BeyondError for positions of which it is to be found out first whether they can be."""
        for position in positions:
            if self.is_beyond(position.pubend, position.tick):
                raise BeyondError(position, who)

    def put_off(self, session: ClientSession, request: Any, beyond: BeyondError, again: Then, now: int) -> None:
        """A request waits until it is known whether its position can be; then it is handled again, or refused."""

        def refuse(why: RefusedError, _now: int, _wall: int) -> None:
            self._hosting.tell(session.number, why.answer(request.request))

        creates = (session.client_id, request.name or "") if isinstance(request, Subscribe | Attach) else None
        doubt = Doubt(beyond.position.tick, beyond.who, again, refuse, session.number, creates)
        self._add(beyond.position.pubend, doubt, now)

    def give_up(self, client_id: str, name: str, now: int, wall: int) -> None:
        """Somebody removes the subscription: a request that waits to create it must not do so afterwards."""
        for pubend in list(self.doubts):
            for doubt in self._take(pubend, lambda doubt: doubt.creates == (client_id, name)):
                doubt.refuse(RefusedError(Code.NOT_FOUND, f"{doubt.who} was removed"), now, wall)

    def watch(self, consumer: Consumer, at: Mapping[PubendId, Tick], now: int) -> None:
        """A consumer goes on from these positions: it is served at once, and told if one of them cannot be.

        Where its subscription begins is out of doubt: that was looked at when it was created, or recovered.
        """
        for pubend, tick in at.items():
            position = self._hosting.streams[pubend].positions[consumer.sid]
            if tick != position.start and self.is_beyond(pubend, tick):
                doubt = Doubt(tick, _name(consumer), _nothing, self._refusing(consumer), consumer.channel.session)
                self._add(pubend, doubt, now)

    def acknowledge(self, consumer: Consumer, said: Acknowledged, now: int) -> None:
        """The application is done with everything up to a position. One that cannot be is not taken, ever.

        It is told so like one that goes on from there. If it leaves meanwhile, what it said still counts.
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

        self._add(said.pubend, Doubt(said.tick, _name(consumer), take, self._refusing(consumer), None), now)

    def look_back(self, now: int) -> None:
        """What was recovered: an earlier version of this broker took any position, and was silent from then on."""
        for stream in self._hosting.streams.values():
            for sid in stream.positions:
                self.look_at(stream, sid, now)

    def look_at(self, stream: Constream, sid: int, now: int) -> None:
        """Where a subscription stands is put right if nobody can have come there."""
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

        self._add(stream.pubend, Doubt(tick, called(subscription.name), _nothing, put_right, None), now)

    # ----------------------------------------------------------------------------------- what is heard

    def on_heard(self, stream: Constream, now: int, wall: int) -> None:
        """The pubend was heard of: what it has reached is no longer in doubt, and of the rest it is asked."""
        for doubt in self._take(stream.pubend, lambda doubt: not self.is_beyond(stream.pubend, doubt.tick)):
            if stream.is_lost(doubt.tick):
                doubt.refuse(RefusedError(Code.TOKEN_AHEAD, lost_data(doubt.who, stream.pubend)), now, wall)
            else:
                doubt.good(now, wall)
        self._ask(stream, now)

    def on_held(self, stream: Constream, held: Held, now: int, wall: int) -> None:
        """The PHB says how far it is. Whoever was in doubt before it was asked, and is ahead of that, is refused."""
        stream.catch_up(held.stable, now)
        self.on_heard(stream, now, wall)
        for doubt in self._take(stream.pubend, lambda doubt: (doubt.version or FOREVER) <= held.version):
            reason = (
                f"{doubt.who} stands ahead of everything that {stream.pubend} has: the token was not handed out by "
                "this broker, or the broker has lost data since"
            )
            doubt.refuse(RefusedError(Code.TOKEN_AHEAD, reason), now, wall)

    def on_session_ended(self, session: int) -> None:
        """Nobody waits for the answer there any more."""
        for pubend in list(self.doubts):
            self._take(pubend, lambda doubt: doubt.session == session)

    # -------------------------------------------------------------------------------------- how it is done

    def _add(self, pubend: PubendId, doubt: Doubt, now: int) -> None:
        self.doubts.setdefault(pubend, []).append(doubt)
        self._ask(self._hosting.streams[pubend], now)

    def _take(self, pubend: PubendId, is_over: Callable[[Doubt], bool]) -> list[Doubt]:
        """Takes out those that are over."""
        over: list[Doubt] = []
        rest: list[Doubt] = []
        for doubt in self.doubts.pop(pubend, []):
            (over if is_over(doubt) else rest).append(doubt)
        if rest:
            self.doubts[pubend] = rest
        return over

    def _ask(self, stream: Constream, now: int) -> None:
        """Asks for those in doubt, once the pubend was heard of in this life: before that, nothing is known of it."""
        unasked = [doubt for doubt in self.doubts.get(stream.pubend, []) if doubt.version is None]
        if not unasked or not stream.meta.stable:
            return
        if stream.holds.durable == stream.holds.version:  # else a row is about to be sent: that asks for these as well
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
        pubend, upto = stream.pubend, stream.behind(stream.told_upto)
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
    """It is out of doubt, and goes on as it is."""

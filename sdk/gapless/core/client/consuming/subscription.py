"""A subscription: attached again after every reconnect, without losing an event (protocol: delivery, session).

    IDLE ──Subscribe──▶ ASKING ──Subscribed──▶ ATTACHED        any ──refused, Detached, end()──▶ OVER
      ▲                    │ session over, try later │
      └────────────────────┴─────────────────────────┘

The rules of every core hold here, too (`gapless.core`). Nothing is sent without a session.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as options
from enum import Enum
from functools import partial

from msgspec.structs import replace

from gapless.core.client.consuming.acknowledging import Acknowledging
from gapless.core.client.consuming.buffer import PubendBuffer
from gapless.core.client.consuming.committing import AHEAD_EVENTS, Committing, Redelivery
from gapless.core.client.consuming.items import Delivery, Item
from gapless.core.client.link.backoff import Backoff
from gapless.core.client.link.effects import Answered, Arrived, Attached, Failed, Notice
from gapless.core.client.link.errors import TEMPORARY, error_of, request_error
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.registry import ClientTimer, Key
from gapless.core.deadlines import Deadlines
from gapless.core.stream.batch_bytes import COUNT_BYTES
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages import (
    Acknowledge,
    Code,
    Committed,
    Credit,
    Detach,
    InUse,
    OnChange,
    Order,
    Position,
    RequestFailed,
    Sharing,
    StartAt,
    Subscribe,
    Subscribed,
    Unit,
)
from gapless.core.wire.token_room import TokenRoom
from gapless.core.wire.tokens import CheckpointToken, ConsumedToken
from gapless.errors import ConfigurationError, GaplessError, RemoteProtocolError, SubscriptionTakenOverError

WINDOW_EVENTS = 16_384
WINDOW_BYTES = 4 << 20
FORMER_SIDS = 1024
SILENCE_PAUSE = 5_000_000_000
"""Nanoseconds. So long after an attachment silence is acknowledged, then after twice as long each time."""


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """What an application has asked to subscribe to."""

    topics: tuple[str, ...]
    name: str | None = None
    """The name; None if it is not durable."""
    selector: str = ""
    start: StartAt = StartAt.LATEST
    start_wall: int = 0
    """For StartAt.TIME: milliseconds since 1970."""
    positions: Mapping[PubendId, Tick] | None = None
    """Where to begin, for StartAt.TOKEN."""
    token_sid: int = 0
    token_generation: int = 0
    token_seal: bytes = b""
    token_home: ShbId = ""
    in_use: InUse = InUse.ERROR
    no_local: bool = False
    """Whether events with the connection's own JMSXAppID are left out."""
    on_change: OnChange = OnChange.ERROR
    order: Order = Order.PUBEND
    """TOTAL: everything is handed out in the order in which it arrives, whichever pubend it is of."""
    commits: bool = False
    """Whether its home keeps the position, of a durable subscription: `commit` and `take_unit` are used."""
    gathers: bool = False
    """Whether what it commits gathers until it does: else it commits an event, or a batch, before it asks for more."""
    silence: bool = False
    """Whether silences are handed out, too."""
    window_events: int = WINDOW_EVENTS
    """How many events may be on their way or buffered."""
    window_bytes: int = WINDOW_BYTES
    """How many bytes may be on their way or buffered; one delivery may go beyond that."""
    sharing: Sharing | None = None
    """How it takes part in a shared subscription; None: it is not shared."""


class SubscriptionPhase(Enum):
    """The state of a subscription at the broker, in the present session."""

    IDLE = "idle"
    ASKING = "asking"
    ATTACHED = "attached"
    OVER = "over"


@dataclass(slots=True)
class Turn:
    """A buffer that has something to hand out."""

    buffer: PubendBuffer
    entries: int
    """In total order: how many entries arrived before anything of another pubend did. Else 0: buffers take turns."""


class ConsumerCore:
    """One consumer of a subscription: what plain ones and those of shared subscriptions have in common."""

    def __init__(
        self, number: int, wanted: SubscribeOptions, backoff: Backoff, outbox: ClientOutbox, deadlines: Deadlines[Key]
    ) -> None:
        self.number = number
        self.asked = outbox.attempts.next()
        """When the application asked for it, as its process counts."""
        self.wanted = wanted
        self.phase = SubscriptionPhase.IDLE
        self.sid = 0
        """The subscription's id at its home, which its tokens have."""
        self.home: ShbId = ""
        """The SHB that keeps it; "" if the broker is in no network."""
        self.generation = 0
        self.session_sid = 0
        """Its id in the present session: another one than `sid` if it is attached elsewhere than at its home."""
        self.draining = False
        self.was_in_own_way = False
        """Whether the broker may refuse it because of an earlier request of this client, which was given up here."""
        self._backoff = backoff
        self._outbox = outbox
        self._deadlines = deadlines
        self._announced = False
        self._was_attached = False
        self._stalled = False
        self._confirms = 0
        """What the next request has to repeat, so that the broker knows that it is still wanted."""
        self._credit_events = 0
        self._credit_bytes = 0

    # Getters.

    @property
    def over(self) -> bool:
        """Whether it was ended, by the application or by the broker."""
        return self.phase is SubscriptionPhase.OVER

    @property
    def durable(self) -> bool:
        """Whether it lives on at the broker without a consumer."""
        return self.wanted.name is not None

    # What happened.

    def on_session(self) -> None:
        """A session is open: attaches in it."""
        self.phase = SubscriptionPhase.ASKING
        self._renew_credit()
        self._outbox.send(self._subscribe())

    def on_session_over(self) -> None:
        """The session is over. What is buffered stays."""
        self.phase = SubscriptionPhase.IDLE
        self._deadlines.clear((ClientTimer.SUBSCRIPTION, self.number))

    def on_subscribed(self, subscribed: Subscribed) -> None:
        """The broker has attached this subscription."""
        raise NotImplementedError

    def on_failed(self, failed: RequestFailed) -> None:
        """The broker has refused to attach this subscription, for now or for good."""
        if failed.confirm:
            self._confirms = failed.confirm
            self.on_session()
        elif failed.code in TEMPORARY:
            self.phase = SubscriptionPhase.IDLE
            self._deadlines.set((ClientTimer.SUBSCRIPTION, self.number), self._outbox.now + self._backoff.next())
            if not self._stalled:
                self._stalled = True
                what = "a subscription" if self.wanted.name is None else f"subscription {self.wanted.name!r}"
                self._outbox.tell(Notice(f"{what} waits and will try again: {failed.reason}"))
        elif self._was_attached and failed.code is Code.IN_USE:
            # It was ours, and another consumer has taken it while we were away.
            self.fail(SubscriptionTakenOverError(failed.reason))
        else:
            self.fail(request_error(failed))

    def on_detached(self, code: Code, reason: str) -> None:
        """The broker has ended it."""
        self.fail(error_of(code, reason))

    def on_deadline(self) -> None:
        """The delay is over: asks once more."""
        if self.phase is SubscriptionPhase.IDLE and self._outbox.open:
            self.on_session()

    # Commands.

    def expect_more(self) -> None:
        """Lets the next arrival emit Arrived, although nothing was taken."""
        self._announced = False

    def drain(self) -> None:
        """Hands out nothing more. What was handed out can still be acknowledged."""
        self.draining = True
        self._outbox.tell(Arrived(self.number))

    def release(self) -> None:
        """Says goodbye to the broker, if it is attached."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends it: what is buffered is dropped."""
        self.phase = SubscriptionPhase.OVER
        self._deadlines.clear((ClientTimer.SUBSCRIPTION, self.number))

    def fail(self, error: GaplessError) -> None:
        """Ends it, and reports the reason to the application."""
        self.end()
        self._outbox.tell(Failed(self.number, error))

    # How it is done.

    def _renew_credit(self) -> None:
        """Credit is granted anew: what was under way in the former session never comes, what is buffered stays."""
        raise NotImplementedError

    def _subscribe(self) -> Subscribe:
        """Returns the message that attaches it."""
        raise NotImplementedError

    def _attached_as(self, subscribed: Subscribed) -> None:
        """It is attached, under this id."""
        self.phase = SubscriptionPhase.ATTACHED
        self.sid, self.home = subscribed.home_sid or subscribed.sid, subscribed.home
        self.session_sid = subscribed.sid
        self.generation = subscribed.generation
        self._stalled = False
        self._backoff.reset()

    def _tell_attached(self, subscribed: Subscribed) -> None:
        """Tells the application that it is attached, the first time."""
        if not self._was_attached:
            self._was_attached = True
            attached = Attached(self.sid, self.generation, subscribed.created, subscribed.untaken)
            self._outbox.tell(Answered(self.number, attached))

    def _announce(self) -> None:
        """There is something to take."""
        if not self._announced:
            self._announced = True
            self._outbox.tell(Arrived(self.number))

    def _credit(self, events: int, size: int) -> None:
        """Grants credit that is free again."""
        self._credit_events += events
        self._credit_bytes += max(0, size)
        self._outbox.send(Credit(self.session_sid, events, max(0, size), self.number))


class SubscriptionCore(ConsumerCore):
    """One subscription of one connection."""

    def __init__(
        self, number: int, wanted: SubscribeOptions, backoff: Backoff, outbox: ClientOutbox, deadlines: Deadlines[Key]
    ) -> None:
        super().__init__(number, wanted, backoff, outbox, deadlines)
        self.seal = b""
        self.former_sids: deque[tuple[ShbId, int]] = deque(maxlen=FORMER_SIDS)
        """The former ids of a subscription that is not durable.

        The broker gives it a new id at every reconnect. Tokens issued under its earlier ids stay valid, so the ids are
        kept to recognise them.
        """
        self.acknowledging = Acknowledging()
        self.committing = Committing(wanted.gathers) if wanted.commits and wanted.name is not None else None
        """What has to be durable before more is handed out; None: nothing."""
        self._recovered: dict[PubendId, list[Tick]] = {}
        """Up to where this process was handed events each time it recovered them."""
        self._silence_pause = self._silence_due = 0
        """When silence is acknowledged next, and after how long again; see `_acknowledge_silence`."""
        self._room = TokenRoom()
        self._buffers: dict[PubendId, PubendBuffer] = {
            pubend: self._new_buffer(pubend, tick, tick) for pubend, tick in (wanted.positions or {}).items()
        }
        self._turns: deque[Turn] = deque()
        """Whose turn it is to hand out something."""
        self._in_flight: PubendBuffer | None = None
        self._asked: Mapping[PubendId, Tick] | None = None
        self._buffered_events = 0
        self._buffered_bytes = 0

    # Getters.

    @property
    def buffered_events(self) -> int:
        """How many events have arrived and were not taken."""
        return self._buffered_events

    @property
    def has_something(self) -> bool:
        """Whether `take` would find something."""
        return bool(self._turns) and not self.draining

    def positions(self) -> dict[PubendId, Tick]:
        """Returns up to where everything was handed out and is done with, without what is in flight.

        A pubend of which nothing was handed out is left out. The broker then takes the subscription's start; a tick of
        0 would ask for everything that ever was on it.
        """
        return {pubend: buffer.position for pubend, buffer in self._buffers.items() if buffer.position}

    def end_positions(self) -> dict[PubendId, Tick]:
        """Returns the same, including what is in flight."""
        return {pubend: end for pubend, buffer in self._buffers.items() if (end := buffer.end)}

    # What happened.

    def on_subscribed(self, subscribed: Subscribed) -> None:
        """The broker has attached this subscription."""
        if self.wanted.order is Order.TOTAL and not subscribed.group:
            self.fail(ConfigurationError("the broker is older than order='total', and would not keep it"))
            return
        if self.wanted.no_local and not subscribed.no_local:
            self.fail(ConfigurationError("the broker is older than no_local=True, and would not keep it"))
            return
        if self.committing is not None and not subscribed.epoch:
            self.fail(ConfigurationError("the broker is older than commits: with it, use AckMode.DUPS_OK"))
            return
        sid = subscribed.home_sid or subscribed.sid
        if self._was_attached and (self.home, self.sid) != (subscribed.home, sid):
            self.former_sids.append((self.home, self.sid))
        self._attached_as(subscribed)
        self.seal = subscribed.seal
        self._place(subscribed)
        if self._has_no_room():
            return
        self._silence_pause = SILENCE_PAUSE
        self._silence_due = self._outbox.now + self._silence_pause
        if self.committing is not None and self.committing.on_attached(subscribed, again=self._was_attached):
            self._outbox.tell(Arrived(self.number))
        self._tell_attached(subscribed)
        self.send_acknowledgement()
        self._send_commit()
        self._grant()  # items that were taken while the broker was asked have left room

    def on_committed(self, committed: Committed) -> None:
        """What was asked for is durable at the home."""
        if self.committing is not None and self.committing.on_committed(committed.number):
            self._outbox.tell(Arrived(self.number))

    def on_events(self, pubend: PubendId, columns: DeliveredColumns) -> None:
        """Events have arrived. Raises RemoteProtocolError, having changed nothing, if there is no credit for them."""
        # One delivery may go beyond the bytes that are granted: an event may be larger than all of them.
        if columns.count > self._credit_events or self._credit_bytes <= 0:
            raise RemoteProtocolError(f"the broker sent more than the credit of subscription {self.sid}")
        buffer = self._buffer(pubend)
        if self.over:
            return
        new = buffer.on_events(columns)
        self._credit_events -= columns.count
        self._credit_bytes -= columns.size + COUNT_BYTES
        if new is None:
            return
        self._buffered_events += new.count
        self._buffered_bytes += new.size
        self._arrived(buffer)

    def on_silence(self, pubend: PubendId, upto: Tick) -> None:
        """Silence has arrived up to a tick."""
        buffer = self._buffer(pubend)
        if self.over:
            return
        joins = self.wanted.order is Order.PUBEND or (bool(self._turns) and self._turns[-1].buffer is buffer)
        if buffer.on_silence(upto, joins=joins):
            self._arrived(buffer)
        if self.durable and self._outbox.now >= self._silence_due:
            self._acknowledge_silence()
            # Ever more rarely: a subscription that is silent for days must not cost a write each second.
            self._silence_pause *= 2
            self._silence_due = self._outbox.now + self._silence_pause
            self.send_acknowledgement()

    def on_gap(self, pubend: PubendId, start: Tick, end: Tick, reason: str) -> None:
        """A gap has arrived: events may be lost."""
        buffer = self._buffer(pubend)
        if not self.over and buffer.on_gap(start, end, reason):
            self._arrived(buffer)

    # Commands.

    def take(self, events_max: int | None) -> Item | None:
        """Finishes what was in flight, and hands out the next item; None if there is none, or no more."""
        if self._in_flight is not None:
            self._in_flight.advance()
            self._in_flight = None
        if self.draining or self.phase is SubscriptionPhase.OVER or not self._turns:
            self._announced = False
            return None
        turn = self._turns.popleft()
        buffer = self._in_flight = turn.buffer
        before = len(buffer) if turn.entries else 0
        item = buffer.take(events_max, turn.entries)
        left = len(buffer)
        if turn.entries:
            turn.entries -= before - left
            if turn.entries:
                self._turns.appendleft(turn)
        elif left:
            self._turns.append(turn)
        if isinstance(item, Delivery):
            self._buffered_events -= item.count
            self._buffered_bytes -= item.size
            assert self._buffered_events >= 0
            assert self._buffered_bytes >= 0
            self._grant()
            if self._recovered:
                recovered = self._recovered.get(buffer.pubend)
                if recovered is not None and item.ticks[0] <= max(recovered):
                    return Redelivery(item, recovered)
        return item

    def take_unit(self, events_max: int) -> Item | None:
        """Hands out the next item, if it may be: events up to `events_max`. None: there is none, or it has to wait.

        `Arrived` follows when there is something.
        """
        committing = self.committing
        assert committing is not None
        if committing.under_way is not None or (committing.in_hand and not committing.gathers):
            return None
        if events_max == 1 and committing.is_certain:
            item = self.take(1)
            if not isinstance(item, Delivery):
                return item
            first = item.ticks[0]
            return committing.hand_out(Unit(item.pubend, first, first), item)
        unit = self._next_unit(events_max)
        if unit is None or self.draining:
            return self.take(events_max)
        upto = committing.allowed(unit)
        if upto is None:
            committing.ask([], self._next_unit(max(AHEAD_EVENTS, events_max)) if committing.gathers else unit)
            self._send_commit()
            return None
        is_whole = upto == unit.last and not unit.counted and not committing.knows_earlier
        count = events_max if is_whole else self._count_upto(upto)
        delivery = self.take(count)
        assert isinstance(delivery, Delivery)
        return committing.hand_out(unit, delivery)

    def commit(self, positions: Mapping[PubendId, Tick], events_max: int) -> bool:
        """The application is done with everything up to these positions, and asks for up to so many events.

        If it was handed something since the last commit, nothing else is handed out until this is durable; see
        `committing.under_way`. What it is handed next is announced with it. Returns False if it was handed nothing:
        then only silence has passed, for which an acknowledgement is enough.
        """
        committing = self.committing
        assert committing is not None
        if committing.under_way is not None or self.over:
            return True
        was_handed = bool(committing.in_hand) or any(
            not buffer.history.silent_after(self.acknowledging.position(pubend) or 0)
            for pubend, buffer in self._buffers.items()
            if pubend in positions and self.acknowledging.is_news(pubend, positions[pubend])
        )
        if not was_handed:
            return False
        self.acknowledge(positions)
        for pubend in committing.in_hand:  # the application may have acknowledged it, which was not durable
            self.acknowledging.unsend(pubend)
        knows = not events_max or (events_max == 1 and committing.is_certain)
        committing.ask(self.acknowledging.take_unsent(), None if knows else self._next_unit(events_max))
        self._send_commit()
        return True

    def enlist(self, pubend: PubendId) -> None:
        """A transaction is going to store the position at a pubend; see `committing.enlisted`."""
        assert self.committing is not None
        if self.committing.under_way is None and not self.over:
            self.committing.enlist(pubend)
            self._send_commit()

    def consumed(self, network: str, positions: Mapping[PubendId, Tick]) -> ConsumedToken:
        """Returns what a transaction stores that has consumed everything up to these positions."""
        assert self.committing is not None
        token = CheckpointToken(network, positions, self.sid, self.generation, self.seal, self.home)
        return ConsumedToken(self.committing.key, self.committing.claim, token)

    def acknowledged(self) -> SubscribeOptions:
        """Returns what to ask for to be handed everything again that is not acknowledged."""
        began = dict(self.wanted.positions or {})
        known = {pubend: self.acknowledging.position(pubend) for pubend in self._buffers}
        return options(
            self.wanted,
            start=StartAt.TOKEN,
            positions=began | {pubend: tick for pubend, tick in known.items() if tick},
            token_sid=self.sid,
            token_generation=self.generation,
            token_seal=self.seal,
            token_home=self.home,
            in_use=InUse.ERROR,
            on_change=OnChange.ERROR,
        )

    def recovers(self, former: SubscriptionCore, handed: Mapping[PubendId, Tick]) -> None:
        """It goes on for one that has left. `handed`: up to where that was handed events; some may not be acknowledged.

        Those are handed out again, and are marked and counted.
        """
        self.asked = former.asked  # nobody has asked for another consumer
        self.acknowledging = former.acknowledging
        self._recovered = {pubend: [*uptos] for pubend, uptos in former._recovered.items()}
        for pubend, buffer in former._buffers.items():
            last = buffer.last_event(handed.get(pubend, 0))
            if last > (self.acknowledging.position(pubend) or 0):
                self._recovered.setdefault(pubend, []).append(last)
        if self.committing is not None and former.committing is not None:
            self.committing.recovers(former.committing)

    def acknowledge(self, positions: Mapping[PubendId, Tick]) -> bool:
        """The application is done with everything up to these positions. Returns whether there is something to send."""
        for pubend, tick in positions.items():
            if not self.acknowledging.is_news(pubend, tick):
                continue
            buffer = self._buffers.get(pubend)
            event = tick
            if buffer is not None:
                event = buffer.last_event(tick)
                buffer.history.forget(tick)
            self.acknowledging.acknowledge(pubend, tick, event)
        return self.acknowledging.unsent

    def send_acknowledgement(self) -> None:
        """Sends what is acknowledged, if the subscription is attached."""
        if self.phase is SubscriptionPhase.ATTACHED and self.acknowledging.unsent:
            self._outbox.send(Acknowledge(self.session_sid, self.acknowledging.take_unsent()))

    def release(self) -> None:
        """Sends what is acknowledged, and detaches, if the subscription is attached."""
        if self.phase is SubscriptionPhase.ATTACHED:
            self.send_acknowledgement()
            detach = Detach(self.session_sid, self.number)
            if self.committing is not None:
                handed = list(self.committing.in_hand.values())
                detach = replace(detach, handed=handed, cleared=self.committing.left())
            self._outbox.send(detach)

    def end(self) -> None:
        """Ends it: what is buffered is dropped. Its positions stay."""
        super().end()
        self._turns.clear()
        self._buffered_events = self._buffered_bytes = 0

    # How it is done.

    def _renew_credit(self) -> None:
        self._credit_events = max(0, self.wanted.window_events - self._buffered_events)
        self._credit_bytes = max(0, self.wanted.window_bytes - self._buffered_bytes)

    def _next_unit(self, events_max: int) -> Unit | None:
        """Returns the unit that is next; None if that is a silence or a gap, or nothing."""
        if not self._turns or self.committing is None:
            return None
        turn = self._turns[0]
        ticks = turn.buffer.peek(events_max, turn.entries)
        events = partial(turn.buffer.peek_events, events_max, turn.entries)
        return self.committing.unit(turn.buffer.pubend, ticks, events) if ticks else None

    def _count_upto(self, tick: Tick) -> int:
        turn = self._turns[0]
        ticks = turn.buffer.peek(self.wanted.window_events, turn.entries)
        return bisect_right(ticks, tick)

    def _send_commit(self) -> None:
        """Sends what has to be durable now, if it is attached."""
        if self.committing is None or self.phase is not SubscriptionPhase.ATTACHED:
            return
        commit = self.committing.under_way
        if commit is not None:
            if not self.committing.is_of_this_attachment(commit):
                commit = self.committing.again(self.acknowledging.repeat())
                assert commit is not None
            self._outbox.send(commit)

    def _subscribe(self) -> Subscribe:
        """Returns the message that attaches it.

        The first time it is what the application has asked for. Later it is by id, after what was received, and never
        creates. A subscription that is not durable ended with its session; for that a new one begins after what was
        received.
        """
        wanted = self.wanted
        again = self._was_attached
        self._acknowledge_silence()
        received = {pubend: buffer.received for pubend, buffer in self._buffers.items() if buffer.received}
        self._asked = received if again else wanted.positions
        attach = again and self.durable
        if self.committing is not None:
            self.committing.on_asking()
        confirms, self._confirms = self._confirms, 0
        return Subscribe(
            request=self.number,
            name=wanted.name,
            topics=wanted.topics,
            selector=wanted.selector,
            start=StartAt.TOKEN if again else wanted.start,
            start_wall=wanted.start_wall if wanted.start is StartAt.TIME else 0,
            positions=None if self._asked is None else [Position(*pair) for pair in self._asked.items()],
            token_sid=self.sid if again else wanted.token_sid,
            token_generation=self.generation if again else wanted.token_generation,
            token_seal=self.seal if again else wanted.token_seal,
            acknowledged=self.acknowledging.repeat(),
            # A consumer that has it now took it while we were away. To wait for it, or to take it back, would be a
            # duel.
            in_use=InUse.ERROR if again else wanted.in_use,
            credit_events=self._credit_events,
            credit_bytes=self._credit_bytes,
            sid=self.sid if attach else 0,
            generation=self.generation if attach else 0,
            home=self.home if attach else "",
            token_home=self.home if again else wanted.token_home,
            order=wanted.order,
            commits=self.committing is not None,
            attempt=self._outbox.attempts.next(),
            no_local=wanted.no_local,
            on_change=wanted.on_change,
            epoch=self.committing.former_epoch if self.committing is not None and not again else 0,
            process=self._outbox.attempts.process,
            confirms=confirms,
            asked=self.asked,
        )

    def _acknowledge_silence(self) -> None:
        """Acknowledges the silence after the acknowledged position: no event in it needs the application.

        In a crash the broker may have forgotten that it had found nothing there, and would keep everything after it. It
        may also have begun to note what matches only later than this subscription begins. An application that waits for
        an event, maybe for days, says nothing of the silence before.
        """
        if self.committing is not None and not self.committing.is_idle:
            return
        for pubend, buffer in self._buffers.items():
            known = self.acknowledging.position(pubend)
            if known is not None and known < buffer.received and buffer.only_silent(known):
                self.acknowledging.acknowledge(pubend, buffer.received, buffer.last_event(known))

    def _place(self, subscribed: Subscribed) -> None:
        """Begins each new pubend at the broker's position; where this side knows its own position, it stays.

        A pubend of the token that the broker has not seen yet is kept. If the broker begins above what was asked for,
        nothing is known about the ticks between: that is a gap, whatever the reason is.
        """
        for position in subscribed.positions:
            buffer = self._buffers.get(position.pubend)
            if buffer is None:
                self._buffers[position.pubend] = self._new_buffer(position.pubend, position.tick, 0)
                self.acknowledging.start(position.pubend, position.tick)
            elif position.tick > buffer.received:
                reason = "the broker resumed after a later position"
                self.on_gap(position.pubend, buffer.received, position.tick, reason)

    def _buffer(self, pubend: PubendId) -> PubendBuffer:
        buffer = self._buffers.get(pubend)
        if buffer is None:
            buffer = self._buffers[pubend] = self._new_buffer(pubend, 0, 0)
            if self.committing is not None:  # nobody but this consumer acknowledges what was found later
                self.acknowledging.start(pubend, 0)
            self._has_no_room()
        return buffer

    def _has_no_room(self) -> bool:
        """Ends it if its tokens have no room for its pubends: nothing is handed out that no text can acknowledge."""
        problem = self._room.problem
        if problem and not self.over:
            self.release()
            name = f"subscription {self.wanted.name!r}" if self.durable else "a subscription"
            self.fail(ConfigurationError(f"{name} {problem}. Its last token stays valid"))
        return bool(problem)

    def _new_buffer(self, pubend: PubendId, start: Tick, last_below: Tick) -> PubendBuffer:
        self._room.add(pubend)
        return PubendBuffer(pubend, start, last_below, wants_silence=self.wanted.silence)

    def _arrived(self, buffer: PubendBuffer) -> None:
        if self.wanted.order is Order.TOTAL:
            if self._turns and self._turns[-1].buffer is buffer:
                self._turns[-1].entries += 1
            else:
                self._turns.append(Turn(buffer, 1))
        elif len(buffer) == 1:
            self._turns.append(Turn(buffer, 0))
        self._announce()

    def _grant(self) -> None:
        """Grants the credit that is free again, once it is a quarter of the window."""
        wanted = self.wanted
        events = wanted.window_events - self._buffered_events - self._credit_events
        size = wanted.window_bytes - self._buffered_bytes - self._credit_bytes
        assert events >= 0, "more is granted than there is room for"
        enough = 4 * events >= wanted.window_events or 4 * size >= wanted.window_bytes
        if enough and self.phase is SubscriptionPhase.ATTACHED:
            self._credit(events, size)

"""A consumer of a shared subscription: it holds events until they are settled (protocol: shared-subscriptions).

    IDLE ──Subscribe──▶ ASKING ──Subscribed──▶ ATTACHED        any ──refused, Detached, end()──▶ OVER
      ▲                    │ session over, try later │
      └────────────────────┴─────────────────────────┘

What has arrived goes this way, each event by itself:

    CAREFUL ──Take──▶ TAKING ──Taken──▶ READY ──take()──▶ HELD ──settle()──▶ SETTLED ──Settled──▶ nobody's affair
       ▲                 │                │                │ └──HoldLost──▶ lost
       └─ session over ──┴────────────────┘                └─ session over: resumed with the next attachment

It arrives CAREFUL if it may have been handed out before, else READY. What was never handed out when a session ends is
CAREFUL in the next: only the broker knows whether somebody else has got it meanwhile, and Taken says so.

There is no position and no token. Nothing is handed out without a session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import lt

from msgspec.structs import replace

from gapless.core.client.consuming.held import HeldDelivery, HeldGap, HeldRun, counts_of
from gapless.core.client.consuming.settling import HOLD_BYTES, Settling, holds_of
from gapless.core.client.consuming.subscription import ConsumerCore, SubscribeOptions, SubscriptionPhase
from gapless.core.client.link.backoff import Backoff
from gapless.core.client.link.effects import SettlementAnswered
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.registry import Key
from gapless.core.deadlines import Deadlines
from gapless.core.stream.batch_bytes import COUNT_BYTES
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import (
    DeliverHeld,
    DeliverHeldGap,
    Detach,
    Extend,
    HoldLost,
    Holds,
    InUse,
    Kind,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    Take,
    Taken,
)
from gapless.core.wire.messages.sharing import RUN_MAX
from gapless.errors import ConfigurationError, RemoteProtocolError

SETTLEMENT_BYTES = 64 << 10
"""At most so many bytes of verdicts are one settlement; half a frame, where frames are smaller."""


class SharedCore(ConsumerCore):
    """One consumer of a shared subscription, of one connection."""

    def __init__(
        self,
        number: int,
        wanted: SubscribeOptions,
        backoff: Backoff,
        outbox: ClientOutbox,
        deadlines: Deadlines[Key],
        next_settlement: Callable[[], int],
    ) -> None:
        """`next_settlement` counts the settlements of this client, of all its consumers of this name."""
        super().__init__(number, wanted, backoff, outbox, deadlines)
        assert wanted.sharing is not None
        self._sharing = wanted.sharing
        self._careful: deque[HeldRun] = deque()
        self._taking: dict[int, list[HeldRun]] = {}
        """What each Take has named, by the number that stands first in it."""
        self._ready: dict[PubendId, deque[HeldRun]] = {}
        """By the pubend; the one whose turn it is comes first."""
        self._ahead = 0
        """How many are TAKING, or were taken and are READY."""
        self._held: dict[int, tuple[PubendId, Tick]] = {}
        """What was handed out, by the number of its delivery."""
        self._settling = Settling(next_settlement)
        self._buffered_events = 0
        self._buffered_bytes = 0

    # Getters.

    @property
    def durable(self) -> bool:
        """Whether it lives on at the broker without a consumer."""
        return self._sharing.durable

    @property
    def ready_events(self) -> int:
        """How many events, or gaps, may be handed out now."""
        return sum(run.count for runs in self._ready.values() for run in runs)

    @property
    def has_something(self) -> bool:
        """Whether `take` would hand out something."""
        return bool(self._ready) and not self.draining and self.phase is SubscriptionPhase.ATTACHED

    @property
    def is_settled(self) -> bool:
        """Whether every settlement is answered."""
        return self._settling.is_idle

    @property
    def awaits_verdicts(self) -> bool:
        """Whether something that the application said has no answer."""
        return self._settling.awaits_verdicts

    def place(self, number: int) -> tuple[PubendId, Tick] | None:
        """Returns pubend and tick of what was handed out under this number; None if it is settled, or not held."""
        return self._held.get(number)

    def holds_any(self, numbers: Iterable[int]) -> bool:
        """Whether something that was handed out under these numbers is held, and not settled."""
        return not self._held.keys().isdisjoint(numbers)

    # What happened.

    def on_session(self) -> None:
        """A session is open: attaches in it, unless the broker is too old, which would end the session."""
        welcome = self._outbox.welcome
        assert welcome is not None
        if Settle.__name__ in welcome.answers:
            super().on_session()
        else:
            self.fail(ConfigurationError(f"the broker {welcome.node!r} is too old for shared subscriptions: update it"))

    def on_session_over(self) -> None:
        """The session is over. What is held or settled without an answer is resumed in the next one."""
        super().on_session_over()
        self._settling.on_session_over()
        buffered = list(self._buffered())
        self._careful.clear()
        self._taking.clear()
        self._ready.clear()
        self._ahead = 0
        for run in buffered:
            run.taken = False
            self._careful.append(run)

    def on_subscribed(self, subscribed: Subscribed) -> None:
        """The broker has attached it: it goes on with what it holds, and repeats what has no answer."""
        self._attached_as(subscribed)
        self._tell_attached(subscribed)
        self.send_settlements()
        if self._careful:
            self._announce()
        self._grant()  # what was settled while the broker was asked has left room

    def on_events(self, pubend: PubendId, message: DeliverHeld) -> None:
        """Events have arrived. Raises RemoteProtocolError, having changed nothing, if there is no credit for them."""
        columns = message.columns
        if columns.count > self._credit_events or self._credit_bytes <= 0:
            raise RemoteProtocolError(f"the broker sent more than the credit of subscription {self.sid}")
        ticks = columns.ticks()
        if not all(map(lt, ticks, islice(ticks, 1, None))):
            raise RemoteProtocolError(f"a delivery of {pubend} is not in tick order")
        self._credit_events -= columns.count
        self._credit_bytes -= columns.size + COUNT_BYTES
        attempts = message.attempts if any(message.attempts) else b""
        run = HeldRun(pubend, message.first, ticks, columns, attempts=attempts, marked=message.careful)
        self._arrived(run, careful=message.careful)

    def on_gap(self, pubend: PubendId, message: DeliverHeldGap) -> None:
        """A gap has arrived. Raises RemoteProtocolError, having changed nothing, if it is empty."""
        if message.start >= message.end:
            raise RemoteProtocolError(f"a gap of {pubend} from {message.start} to {message.end} is empty")
        attempts = bytes((min(255, max(0, message.attempts)),)) if message.attempts else b""
        counts = counts_of(attempts, 1, marked=message.careful) or [1]
        gap = HeldGap(pubend, message.start, message.end, message.reason, counts[0], message.held)
        run = HeldRun(pubend, message.held, [message.end], None, gap, attempts, message.careful)
        self._arrived(run, careful=message.careful)

    def on_taken(self, message: Taken) -> None:
        """The broker has counted the attempts of what was asked for: it may be handed out now."""
        gone = frozenset(message.lost)
        for run in reversed(self._taking.pop(message.first, [])):
            for part in reversed(self._without(run, gone, ahead=True)):
                part.taken = True
                self._ready.setdefault(part.pubend, deque()).appendleft(part)
                self._announce()
        self._grant()

    def on_settled(self, message: Settled) -> None:
        """A settlement is answered."""
        if self._settling.on_settled(message.number):
            lost = tuple(chain.from_iterable(holds.numbers for holds in message.lost))
            self._outbox.tell(SettlementAnswered(self.number, message.number, lost, message.uncertain))
            self.send_settlements()  # those that had to wait
            self._grant()

    def on_hold_lost(self, message: HoldLost) -> None:
        """Something is not held any more. What was handed out of it is told to whoever settles it."""
        numbers = list(chain.from_iterable(holds.numbers for holds in message.holds))
        for number in numbers:
            self._held.pop(number, None)
        gone = frozenset(numbers)
        self._careful = deque(part for run in self._careful for part in self._without(run, gone, ahead=False))
        for first, runs in self._taking.items():
            self._taking[first] = [part for run in runs for part in self._without(run, gone, ahead=True)]
        for pubend, ready in list(self._ready.items()):
            left = deque(part for run in ready for part in self._without(run, gone, ahead=run.taken))
            if left:
                self._ready[pubend] = left
            else:
                del self._ready[pubend]
        self._grant()

    # Commands.

    def take(self, events_max: int, wanted: int) -> HeldDelivery | HeldGap | None:
        """Hands out the next events of a pubend, up to so many, or a gap; None if there is nothing, or no more.

        `wanted`: how many all who wait want; so many of what may have been handed out before are taken ahead.
        """
        if self.draining or self.phase is not SubscriptionPhase.ATTACHED:
            self._announced = False
            return None
        self.take_ahead(wanted)
        pubend = next(iter(self._ready), None)
        if pubend is None:
            self._announced = False
            return None
        runs = self._ready.pop(pubend)
        item = self._hand_out(runs, events_max)
        if runs:
            self._ready[pubend] = runs  # behind the others
        self._grant()
        return item

    def take_ahead(self, wanted: int) -> None:
        """Asks the broker to count the attempts of so many that may have been handed out before, if it is attached."""
        while self.phase is SubscriptionPhase.ATTACHED and self._careful and self._ahead < wanted:
            pubend, runs = self._careful[0].pubend, self._next_careful(wanted - self._ahead)
            holds = holds_of(pubend, [place for run in runs for place in run.places()])
            self._ahead += len(holds.numbers)
            self._taking[holds.numbers[0]] = runs
            self._outbox.send(Take(self.session_sid, holds))

    def settle(self, kind: Kind, numbers: Iterable[int], delay_ms: int = 0) -> tuple[list[int], list[int]]:
        """The application says something of what it holds. It is sent at the end of the turn.

        Returns the numbers of the settlements, which are answered with SettlementAnswered, and the delivery numbers of
        what is not held.
        """
        places: dict[PubendId, list[tuple[Tick, int]]] = {}
        not_held: list[int] = []
        pop, pubend, at = self._held.pop, "", []
        for number in numbers:
            place = pop(number, None)
            if place is None:
                not_held.append(number)
                continue
            if place[0] != pubend:
                pubend = place[0]
                at = places.setdefault(pubend, [])
            at.append((place[1], number))
        return self._settling.add(kind, delay_ms, places, self._settlement_bytes()), not_held

    def extend(self, numbers: Iterable[int]) -> list[int]:
        """The application still works on these: their time begins anew. Returns those that are not held."""
        places: dict[PubendId, list[tuple[Tick, int]]] = {}
        not_held: list[int] = []
        for number in numbers:
            if number in self._held:
                pubend, tick = self._held[number]
                places.setdefault(pubend, []).append((tick, number))
            else:
                not_held.append(number)
        if self.phase is SubscriptionPhase.ATTACHED:  # else it begins anew with the next attachment
            for pubend, at in places.items():
                self._outbox.send(Extend(self.session_sid, holds_of(pubend, at)))
        return not_held

    def send_settlements(self) -> None:
        """Sends what was settled, if it is attached and not too much is without an answer."""
        if self.phase is SubscriptionPhase.ATTACHED:
            for settlement in self._settling.take_unsent():
                self._outbox.send(Settle(self.session_sid, settlement.number, settlement.message()))

    def drain(self) -> None:
        """Hands out nothing more, and gives back what was not handed out. What is held can still be settled."""
        super().drain()
        self._give_back()

    def release(self) -> None:
        """Says what has yet to be said, gives back what was not handed out, and says goodbye, if it is attached."""
        if self.phase is SubscriptionPhase.ATTACHED:
            self._give_back()
            self.send_settlements()
            self._outbox.send(Detach(self.session_sid, self.number))

    def end(self) -> None:
        """Ends it: what is buffered is dropped, and nothing is held any more."""
        super().end()
        self._careful.clear()
        self._taking.clear()
        self._ready.clear()
        self._held.clear()
        self._buffered_events = self._buffered_bytes = 0

    # How it is done.

    def _subscribe(self) -> Subscribe:
        """Returns the message that attaches it: later by id, with what it holds, and it never creates."""
        wanted, again = self.wanted, self._was_attached
        confirms, self._confirms = self._confirms, 0
        return Subscribe(
            request=self.number,
            name=wanted.name,
            topics=wanted.topics,
            selector=wanted.selector,
            start=wanted.start,
            start_wall=wanted.start_wall,
            positions=None,
            token_sid=0,
            token_generation=0,
            token_seal=b"",
            acknowledged=[],
            in_use=InUse.ERROR,
            credit_events=self._credit_events,
            credit_bytes=self._credit_bytes,
            sid=self.sid if again else 0,
            generation=self.generation if again else 0,
            home=self.home if again else "",
            attempt=self._outbox.attempts.next(),
            on_change=wanted.on_change,
            process=self._outbox.attempts.process,
            confirms=confirms,
            asked=self.asked,
            sharing=replace(self._sharing, holds=self._all_holds()),
        )

    def _all_holds(self) -> tuple[Holds, ...]:
        """Returns what it goes on with: what is held, settled without an answer, or was never handed out."""
        places: dict[PubendId, list[tuple[Tick, int]]] = {}
        for number, (pubend, tick) in self._held.items():
            places.setdefault(pubend, []).append((tick, number))
        for pubend, settled in self._settling.places():
            places.setdefault(pubend, []).extend(settled)
        for run in self._buffered():
            places.setdefault(run.pubend, []).extend(run.places())
        return tuple(holds_of(pubend, at) for pubend, at in places.items())

    def _buffered(self) -> Iterator[HeldRun]:
        """Yields what was not handed out; what was taken already comes first."""
        for runs in self._taking.values():
            yield from runs
        for ready in self._ready.values():
            yield from ready
        yield from self._careful

    def _arrived(self, run: HeldRun, *, careful: bool) -> None:
        if self.over:
            return
        self._buffered_events += run.events
        self._buffered_bytes += run.size
        if careful:
            self._careful.append(run)
        else:
            self._ready.setdefault(run.pubend, deque()).append(run)
        if self.draining:
            self._give_back()
        else:
            self._announce()

    def _next_careful(self, wanted: int) -> list[HeldRun]:
        """Removes and returns what one Take names: so many that come next, of one pubend.

        What was never attempted is named by the run: there, nothing is lost if it counts once too often.
        """
        runs: list[HeldRun] = []
        named = 0
        while (
            named < min(wanted, RUN_MAX)
            and self._careful
            and self._careful[0].pubend == (runs or self._careful)[0].pubend
        ):
            run = self._careful.popleft()
            count = min(run.count, max(wanted - named, run.unattempted), RUN_MAX - named)
            if count < run.count:
                self._careful.appendleft(run.part(count, run.count))
            runs.append(run.part(0, count))
            named += count
        return runs

    def _hand_out(self, runs: deque[HeldRun], events_max: int) -> HeldDelivery | HeldGap:
        """Hands out the first of these: a gap, or events up to so many."""
        first = runs[0]
        if first.gap is not None:
            runs.popleft()
            self._held[first.first] = first.pubend, first.gap.end
            self._ahead -= first.taken
            return first.gap
        deliveries: list[HeldDelivery] = []
        room = events_max
        while runs and room > 0 and runs[0].gap is None:
            run = runs[0]
            delivery = run.take_one() if events_max == 1 else run.take(room)
            deliveries.append(delivery)
            room -= delivery.count
            if run.taken:
                self._ahead -= delivery.count
            if not run.count:
                runs.popleft()
        whole = deliveries[0] if len(deliveries) == 1 else _joined(deliveries)
        self._held.update(zip(whole.numbers, zip(repeat(whole.pubend), whole.ticks)))  # noqa: B905 - repeat is endless
        self._buffered_events -= whole.count
        self._buffered_bytes -= whole.size
        return whole

    def _without(self, run: HeldRun, gone: frozenset[int], *, ahead: bool) -> list[HeldRun]:
        """Returns what is left of a run that is buffered, without what is lost. `ahead`: it counts as taken ahead."""
        left = run.without(gone)
        if left != [run]:
            if ahead:
                self._ahead -= run.count - sum(part.count for part in left)
            self._buffered_events -= run.events - sum(part.events for part in left)
            self._buffered_bytes -= run.size - sum(part.size for part in left)
        return left

    def _give_back(self) -> None:
        """Everything that was not handed out is as it was before it was delivered: others may have it at once."""
        places: dict[PubendId, list[tuple[Tick, int]]] = {}
        for run in self._buffered():
            places.setdefault(run.pubend, []).extend(run.places())
        self._careful.clear()
        self._taking.clear()
        self._ready.clear()
        self._ahead = self._buffered_events = self._buffered_bytes = 0
        self._settling.add(Kind.RELEASE, 0, places, self._settlement_bytes())

    def _settlement_bytes(self) -> int:
        return min(SETTLEMENT_BYTES, self._frame_bytes() // 2)

    def _frame_bytes(self) -> int:
        welcome = self._outbox.welcome
        assert welcome is not None, "nothing is held before the first session"
        return welcome.max_frame_bytes

    def _renew_credit(self) -> None:
        self._credit_events = 0 if self.draining else max(0, self._room())
        self._credit_bytes = max(0, self.wanted.window_bytes - self._buffered_bytes)

    def _room(self) -> int:
        """How many events more may be under way or buffered: all that is held has to fit into one request to attach."""
        fits = self._frame_bytes() // 2 // HOLD_BYTES
        held = len(self._held) + len(self._settling)
        return min(self.wanted.window_events, max(1, fits - held)) - self._buffered_events

    def _grant(self) -> None:
        """Grants the credit that is free again, once it is a quarter of the window."""
        wanted = self.wanted
        events = self._room() - self._credit_events
        size = wanted.window_bytes - self._buffered_bytes - self._credit_bytes
        enough = 4 * events >= wanted.window_events or 4 * size >= wanted.window_bytes
        if enough and self.phase is SubscriptionPhase.ATTACHED and not self.draining:
            self._credit(max(0, events), size)


def _joined(deliveries: Sequence[HeldDelivery]) -> HeldDelivery:
    """Returns the events of several deliveries of one pubend as one."""
    first = deliveries[0]
    counts: list[int] = []
    if any(each.counts for each in deliveries):
        for each in deliveries:
            counts += each.counts or repeat(1, each.count)
    return HeldDelivery(
        first.pubend,
        [columns for each in deliveries for columns in each.columns],
        [tick for each in deliveries for tick in each.ticks],
        [number for each in deliveries for number in each.numbers],
        counts,
    )

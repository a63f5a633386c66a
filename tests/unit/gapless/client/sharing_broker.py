"""A broker in memory with shared subscriptions: each event to one consumer, who settles it.

There is no disk, so what it answers is "durable". It keeps what a consumer holds when its link is cut until a test lets
that go (`let_go`), and answers a repeated settlement as it did the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire import messages as m
from gapless.core.wire.codec import deliver_held_head
from unit.gapless.client.fake_broker import PUBEND, FakeBroker, Session

RUN = 4
"""So many events are delivered together."""


@dataclass
class Entry:
    """An event, or a gap, that is not settled."""

    pubend: PubendId
    tick: Tick
    place: int = 0
    gap: m.DeliverHeldGap | None = None
    attempts: int = 0
    doubt: bool = False
    instance: str = ""
    """Who holds it."""
    number: int = 0
    taken: bool = False
    delay_ms: int = 0
    """It is not delivered before a test says so."""


@dataclass
class Consumer:
    """One consumer that is attached."""

    session: Session
    request: int
    credit: int
    pauses: bool = False
    """It has given something back: it gets nothing more until it grants credit."""


@dataclass
class Shared:
    """A shared subscription."""

    sid: int
    name: str
    sharing: m.Sharing
    frontier: dict[PubendId, Tick]
    generation: int = 77
    entries: list[Entry] = field(default_factory=list)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    """By the instance of the client; whose turn it is is first."""
    answers: dict[str, dict[int, m.Settled]] = field(default_factory=dict)
    """By the instance and the number."""
    settled: list[tuple[PubendId, Tick]] = field(default_factory=list)
    """What was acknowledged, in that order."""
    numbers: int = 0

    @property
    def done(self) -> list[Tick]:
        """The ticks of what was acknowledged, in that order."""
        return [tick for _, tick in self.settled]


class SharingBroker(FakeBroker):
    """Feed it as a `FakeBroker`."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.answers += ("Take", "Settle", "Extend")
        self.shared: dict[int, Shared] = {}
        self.slow: list[tuple[Session, m.ServerMessage]] | None = None
        """Answers that a test lets go by `hurry`; None: they are sent at once."""
        self.uncertain = False
        """Whether it does not know any more what became of settlements."""

    @property
    def only(self) -> Shared:
        """The only shared subscription."""
        [shared] = self.shared.values()
        return shared

    def held(self) -> list[int]:
        """The numbers of what is held, by whomever."""
        return [entry.number for entry in self.only.entries if entry.instance]

    def hurry(self) -> None:
        """All answers leave that were kept back, and the next ones at once."""
        slow, self.slow = self.slow or [], None
        for session, message in slow:
            self.tell(session, message)

    def lose_holds(self, *numbers: int) -> None:
        """The time of these holds is over."""
        for entry in self.only.entries:
            if entry.number in numbers:
                consumer = self.only.consumers[entry.instance]
                lost = (m.Holds(entry.pubend, (entry.tick,), (entry.number,)),)
                self.tell(consumer.session, m.HoldLost(self.only.sid, lost))
                entry.instance, entry.number, entry.doubt, entry.taken = "", 0, True, False
        self.deliver()

    def let_go(self) -> None:
        """Nobody is waited for any more: what was held by those who are gone is free."""
        for entry in self.only.entries:
            if entry.instance and entry.instance not in self.only.consumers:
                entry.instance, entry.number, entry.doubt, entry.taken = "", 0, True, False
        self.deliver()

    def delays_end(self) -> None:
        """What was to come again after a delay may come."""
        for entry in self.only.entries:
            entry.delay_ms = 0
        self.deliver()

    def lose_events(self, upto: Tick) -> None:
        """Somebody is to be told that events up to a tick may be lost."""
        start = self.only.frontier[PUBEND]
        gap = m.DeliverHeldGap(self.only.sid, 0, 0, False, 0, start, upto, "released early")
        self.only.entries.append(Entry(PUBEND, upto, gap=gap))
        self.only.frontier[PUBEND] = upto
        self.deliver()

    def remove(self) -> None:
        """The subscription is removed, by somebody."""
        for consumer in self.only.consumers.values():
            self.tell(consumer.session, m.Detached(self.only.sid, m.Code.UNSUBSCRIBED, "it was removed"))
        self.shared.clear()

    # What happened.

    def _on_subscribe(self, session: Session, message: m.Subscribe) -> None:
        assert message.sharing is not None, "all subscriptions of this broker are shared"
        shared = next((each for each in self.shared.values() if each.name == message.name), None)
        created = shared is None
        if shared is None:
            if message.sid:
                self.tell(session, m.RequestFailed(message.request, m.Code.NOT_FOUND, "it does not exist any more"))
                return
            self._sids += 1
            at = {pubend: self._start(message, pubend, stream) for pubend, stream in self.streams.items()}
            shared = self.shared[self._sids] = Shared(self._sids, message.name or "", message.sharing, at)
        resumed = {number for holds in message.sharing.holds for number in holds.numbers}
        lost: list[m.Holds] = []
        for holds in message.sharing.holds:
            held = {entry.number for entry in shared.entries if entry.instance == session.instance}
            gone = [pair for pair in zip(holds.ticks, holds.numbers, strict=True) if pair[1] not in held]
            lost += [m.Holds(holds.pubend, (tick,), (number,)) for tick, number in gone]
        for entry in shared.entries:
            if entry.instance == session.instance and entry.number not in resumed:
                entry.instance, entry.number = "", 0
        shared.consumers[session.instance] = Consumer(session, message.request, message.credit_events)
        subscribed = m.Subscribed(message.request, shared.sid, shared.generation, b"", created, [])
        self.tell(session, subscribed)
        if lost:
            self.tell(session, m.HoldLost(shared.sid, tuple(lost)))

    def _on_credit(self, session: Session, message: m.Credit) -> None:
        shared = self.shared.get(message.sid)
        if shared is not None and session.instance in shared.consumers:
            shared.consumers[session.instance].credit += message.events
            shared.consumers[session.instance].pauses = False

    def _on_detach(self, session: Session, message: m.Detach) -> None:
        shared = self.shared.get(message.sid)
        if shared is None:
            return
        shared.consumers.pop(session.instance, None)
        shared.answers.pop(session.instance, None)
        for entry in shared.entries:
            if entry.instance == session.instance:
                entry.instance, entry.number, entry.taken = "", 0, False
                entry.attempts += 1

    def disconnect(self, link: int) -> None:
        """A link is gone: what was held in its session is kept."""
        session = self._links.get(link)
        super().disconnect(link)
        for shared in self.shared.values():
            for instance, consumer in list(shared.consumers.items()):
                if consumer.session is session:
                    del shared.consumers[instance]

    def _on_take(self, session: Session, message: m.Take) -> None:
        shared = self.shared[message.sid]
        lost = []
        for number in message.holds.numbers:
            entry = self._entry(shared, session, number)
            if entry is None:
                lost.append(number)
            elif not entry.taken:
                entry.taken = True
                entry.attempts += 1
        self._answer_later(session, m.Taken(shared.sid, message.holds.numbers[0], tuple(lost)))

    def _on_settle(self, session: Session, message: m.Settle) -> None:
        shared = self.shared.get(message.sid)
        if shared is None:
            return
        answers = shared.answers.setdefault(session.instance, {})
        if message.number not in answers:
            lost = []
            for verdict in message.verdicts:
                if verdict.kind is m.Kind.RELEASE and session.instance in shared.consumers:
                    shared.consumers[session.instance].pauses = True
                for tick, number in zip(verdict.holds.ticks, verdict.holds.numbers, strict=True):
                    entry = self._entry(shared, session, number)
                    if entry is None or entry.tick != tick:
                        lost.append(m.Holds(verdict.holds.pubend, (tick,), (number,)))
                    else:
                        self._settle(shared, entry, verdict)
            answers[message.number] = m.Settled(shared.sid, message.number, tuple(lost), uncertain=self.uncertain)
        self._answer_later(session, answers[message.number])

    def _on_extend(self, _session: Session, _message: m.Extend) -> None:
        """Nothing answers it."""

    def deliver(self) -> None:
        """Sends what is there and may be sent."""
        super().deliver()
        for shared in self.shared.values():
            if not self.silent:
                self._read(shared)
                self._dispatch(shared)

    # How it is done.

    @staticmethod
    def _settle(shared: Shared, entry: Entry, verdict: m.Verdict) -> None:
        if verdict.kind is m.Kind.ACKNOWLEDGE:
            shared.entries.remove(entry)
            shared.settled.append((entry.pubend, entry.tick))
            return
        if verdict.kind is m.Kind.RETRY:
            entry.attempts += not entry.taken
            entry.delay_ms = verdict.delay_ms
        entry.instance, entry.number, entry.taken = "", 0, False

    def _answer_later(self, session: Session, message: m.ServerMessage) -> None:
        if self.slow is None:
            self.tell(session, message)
        else:
            self.slow.append((session, message))

    @staticmethod
    def _entry(shared: Shared, session: Session, number: int) -> Entry | None:
        found = (each for each in shared.entries if each.instance == session.instance and each.number == number)
        return next(found, None)

    def _read(self, shared: Shared) -> None:
        """Takes up what was logged since."""
        for pubend, stream in self.streams.items():
            for place, tick in enumerate(stream.ticks):
                if tick > shared.frontier.get(pubend, 0):
                    shared.entries.append(Entry(pubend, tick, place))
                    shared.frontier[pubend] = tick

    def _dispatch(self, shared: Shared) -> None:
        while shared.consumers:
            free = [entry for entry in shared.entries if not entry.instance and not entry.delay_ms]
            able = [
                instance
                for instance, consumer in shared.consumers.items()
                if consumer.credit > 0 and not consumer.pauses
            ]
            if not free or not able:
                return
            instance = able[0]
            consumer = shared.consumers.pop(instance)
            shared.consumers[instance] = consumer  # behind the others
            first = free[0]
            if first.gap is not None:
                self._send_gap(shared, instance, first)
            else:
                careful = first.doubt or first.attempts > 0
                run = []
                for entry in free[: min(RUN, consumer.credit)]:
                    is_alike = entry.gap is None and entry.pubend == first.pubend
                    if not is_alike or (entry.doubt or entry.attempts > 0) != careful:
                        break
                    run.append(entry)
                self._send(shared, instance, run, careful=careful)

    def _send(self, shared: Shared, instance: str, run: list[Entry], *, careful: bool) -> None:
        consumer, stream = shared.consumers[instance], self.streams[run[0].pubend]
        first = shared.numbers + 1
        for entry in run:
            shared.numbers += 1
            entry.number, entry.instance, entry.taken = shared.numbers, instance, False
        run.sort(key=lambda entry: entry.tick)
        for number, entry in enumerate(run, first):
            entry.number = number
        consumer.credit -= len(run)
        batch = EventBatch(
            [entry.tick for entry in run],
            [stream.events[entry.place] for entry in run],
            [stream.body_lengths[entry.place] for entry in run],
        )
        number = self._number(consumer.session, run[0].pubend)
        attempts = bytes(entry.attempts for entry in run)
        head = deliver_held_head(
            consumer.session.number, shared.sid, number, first, careful=careful, attempts=attempts if careful else b""
        )
        self.tell_raw(consumer.session.link, head + batch.payload((1 << len(run)) - 1))

    def _send_gap(self, shared: Shared, instance: str, entry: Entry) -> None:
        assert entry.gap is not None
        consumer = shared.consumers[instance]
        shared.numbers += 1
        entry.number, entry.instance, entry.taken = shared.numbers, instance, False
        number = self._number(consumer.session, entry.pubend)
        careful = entry.doubt or entry.attempts > 0
        gap = m.DeliverHeldGap(
            shared.sid, number, entry.number, careful, entry.attempts, entry.gap.start, entry.gap.end, entry.gap.reason
        )
        self.tell(consumer.session, gap)

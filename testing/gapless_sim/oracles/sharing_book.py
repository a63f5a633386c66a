"""What happened in shared subscriptions: who was sent, handed and told what. The oracles of `sharing` read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gapless.core.wire.messages import (
    DeliverHeld,
    DeliverHeldGap,
    Detach,
    Extend,
    HoldLost,
    Kind,
    PubendNumber,
    Settle,
    Settled,
    StartAt,
    Subscribe,
    Subscribed,
    Take,
    Taken,
)
from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.expired_subscriptions import lapses

if TYPE_CHECKING:
    from gapless.core.client.link.effects import Attached
    from gapless.core.ports import Operation
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.sharing import Holding, SharedConsumer, SharedRow

Key = tuple[str, int]
"""A consumer, as its home knows it through all its sessions."""
Place = tuple["PubendId", "Tick"]


@dataclass(slots=True, eq=False)
class Sent:
    """A delivery of an event to a consumer."""

    number: int
    place: Place
    key: Key
    session: tuple[str, int]
    """The broker and the session that it was sent in."""
    sent_at: int
    boots: int
    """In which life of the broker."""
    careful: bool
    attempts: int
    is_gap: bool = False
    alone: bool = False
    """Whether the consumer that had it before has died with it, so that it has to go alone."""
    extended_at: int = 0
    takes: int = 0
    """How often it was said to be about to be handed out."""
    taken: bool = False
    """Whether that was answered: the attempt is durable."""
    left: bool = False
    """Whether its consumer said goodbye, and had not given it back."""
    lost: bool = False
    """Whether its consumer was told that it holds it no more."""
    said: Kind | None = None
    """The verdict that its broker received."""
    said_in: int = 0
    """In which life of the broker, …"""
    said_at: tuple[str, int] = ("", 0)
    """… and in which session."""
    rival: Sent | None = None
    """A later delivery that somebody worked on, and had not lost, when its broker received the verdict."""
    answered: bool = False
    """Whether its verdict was answered, and took effect."""
    holding: Holding | None = None
    """As it was handed out."""
    consumer: SharedConsumer | None = None


@dataclass(slots=True, eq=False)
class Events:
    """One event of a shared subscription, and all its deliveries."""

    place: Place
    logged: Logged | None = None
    sent: list[Sent] = field(default_factory=list)
    settled: bool = False
    """Whether its broker has answered that it is acknowledged."""
    told: bool = False
    """Whether its consumer was told so."""
    unknown: bool = False
    """Whether it was acknowledged, and nobody may ever be told what became of it."""
    told_lost: bool = False
    """Whether somebody acknowledged it, and was told that this did not take effect."""

    @property
    def handed(self) -> Iterator[Sent]:
        """The deliveries of it that an application was handed."""
        return (each for each in self.sent if each.holding is not None)


@dataclass(slots=True, eq=False)
class Absence:
    """A consumer has no link to its home."""

    since: int
    by_crash: bool
    """Whether its broker died, and no link had ended before."""
    until: int = -1
    crashed: bool = False
    """Whether its broker died meanwhile."""
    booted_at: int = -1
    """When its broker began the last time, meanwhile."""


@dataclass(slots=True, eq=False)
class Story:
    """All of one shared subscription."""

    row: SharedRow
    broker: str
    """Its home."""
    sid: int = 0
    began_at: int = -1
    """When an application knew first that it exists."""
    start: StartAt = StartAt.LATEST
    lost_at_start: dict[PubendId, Tick] = field(default_factory=dict)
    lapsed: bool = False
    """Whether it has lapsed once, or was made anew: what was owed may be lost."""
    crashed_at: int = -1
    """When its broker died last, of those times that may have left something in doubt."""
    events: dict[Place, Events] = field(default_factory=dict)
    numbers: dict[int, Sent] = field(default_factory=dict)
    consumers: dict[Key, SharedConsumer] = field(default_factory=dict)
    absences: dict[Key, list[Absence]] = field(default_factory=dict)
    open: dict[Place, None] = field(default_factory=dict)
    """What was sent in this life of its broker, and whose acknowledgement that has not received."""
    gaps: int = 0
    """How many gaps were sent in it: behind each of them one event may come for which there is no room."""

    @property
    def lane(self) -> str:
        """What it is called."""
        return f"{self.row.client_id}:{self.row.name}"

    def at(self, place: Place) -> Events:
        """What is known of an event, or a gap."""
        found = self.events.get(place)
        if found is None:
            found = self.events[place] = Events(place)
        return found


class SharingBook(Judge):
    """Notes what happens, and objects to nothing but numbers that are given twice."""

    name = "J11"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.stories: dict[int, Story] = {}
        """By the rows' numbers."""
        self.at: dict[tuple[str, int, int], Key] = {}
        """Who takes part in a session of a broker, by the subscription's id."""
        self._takes: dict[tuple[str, int, int, int], tuple[int, ...]] = {}
        """What a Take names, by broker, session, subscription and the number that stands first in it."""
        self._asked: dict[tuple[str, int, int], Key] = {}
        self._of: dict[Key, Story] = {}
        self._pubends: dict[tuple[str, int, int], PubendId] = {}
        self._settles: dict[tuple[str, int, int], Settle] = {}
        """By the process, the row and the number: they are counted over all consumers of a name in a process."""
        self._answers: dict[tuple[str, int, int], frozenset[int]] = {}
        self._left: dict[tuple[str, int], None] = {}
        model.listeners.append(self._logged)

    def story(self, consumer: SharedConsumer) -> Story:
        """The story of a consumer's subscription."""
        return self.stories[consumer.row.number]

    def has_session(self, session: tuple[str, int]) -> bool:
        """Whether a session of a broker is not over, as far as that knows."""
        return session not in self._left

    # In the applications.

    def sharing(self, consumer: SharedConsumer) -> None:
        """A consumer is about to take part."""
        row, story = consumer.row, self.stories.get(consumer.row.number)
        if story is None:
            story = self.stories[row.number] = Story(row, consumer.client.addresses[0], start=row.start)
            self.model.shared_rows.append((story.broker, row))
            for history in self.model.histories.values():
                story.lost_at_start[history.pubend] = history.lost
                for logged in history.events.values():
                    self._note(story, logged)
        story.consumers[consumer.key] = consumer
        self._of[consumer.key] = story

    def shared(self, consumer: SharedConsumer, result: Attached) -> None:
        """It takes part."""
        story = self.story(consumer)
        if story.began_at < 0:
            story.began_at = self.world.now
        elif story.sid and story.sid != result.sid:
            story.lapsed = True
        story.sid = story.sid or result.sid

    def held(self, consumer: SharedConsumer, holding: Holding) -> None:
        """It was handed something."""
        sent = self.story(consumer).numbers.get(holding.number)
        if sent is not None:
            sent.holding, sent.consumer = holding, consumer

    # At the brokers.

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A broker writes: a subscription may have lapsed."""
        for _, client_id, name in lapses(operations):
            for story in self.stories.values():
                if (story.broker, story.row.client_id, story.row.name) == (broker.name, client_id, name):
                    story.lapsed = True

    def received(self, broker: str, session: int, message: Any) -> None:
        """A session says something."""
        kind = type(message)
        if kind is Subscribe:
            if message.sharing is not None:
                self._asked[broker, session, message.request] = message.process, message.request
        elif kind in {Take, Settle, Extend, Detach}:
            key = self.at.get((broker, session, message.sid))
            if key is not None and key in self._of:
                self._said(broker, session, key, message)

    def _said(self, broker: str, session: int, key: Key, message: Take | Settle | Extend | Detach) -> None:
        story = self._of[key]
        boots = self.world.brokers[broker].boots
        if isinstance(message, Settle):
            named = key[0], story.row.number, message.number
            is_repeated = named in self._settles
            self._settles.setdefault(named, message)
            for verdict in message.verdicts:
                for number in verdict.holds.numbers:
                    sent = story.numbers.get(number)
                    if sent is not None and sent.key == key:
                        sent.said, sent.said_in, sent.said_at = verdict.kind, boots, (broker, session)
                        for looker in () if is_repeated else self.lookers:
                            looker.judging(story, story.at(sent.place), sent)
                        if verdict.kind is Kind.ACKNOWLEDGE:
                            story.open.pop(sent.place, None)
        elif isinstance(message, Detach):
            for sent in story.numbers.values():
                if sent.key == key and sent.said is None:
                    sent.left = True
            self._leave(broker, key, by_crash=False)
        else:
            if isinstance(message, Take):
                self._takes[broker, session, message.sid, message.holds.numbers[0]] = message.holds.numbers
            for number in message.holds.numbers:
                sent = story.numbers.get(number)
                if sent is not None and sent.key == key:
                    if isinstance(message, Take):
                        sent.takes += 1
                    else:
                        sent.extended_at = self.world.now

    def sent(self, broker: str, session: int, message: Any) -> None:
        """A session is told something."""
        kind = type(message)
        if kind is PubendNumber:
            self._pubends[broker, session, message.number] = message.pubend
        elif kind is Subscribed:
            key = self._asked.pop((broker, session, message.request), None)
            if key is not None and key in self._of:
                self.join(broker, session, message.sid, key)
        elif kind in {DeliverHeld, DeliverHeldGap, Settled, Taken, HoldLost}:
            key = self.at.get((broker, session, message.sid))
            if key is not None and key in self._of:
                self._told(broker, session, key, message)

    def _told(self, broker: str, session: int, key: Key, message: Any) -> None:
        story = self._of[key]
        if isinstance(message, DeliverHeld):
            pubend = self._pubends[broker, session, message.number]
            for at, tick in enumerate(message.columns.ticks()):
                attempts = message.attempts[at] if message.attempts else 0
                self.send(
                    story,
                    broker,
                    session,
                    key,
                    (pubend, tick),
                    message.first + at,
                    careful=message.careful,
                    attempts=attempts,
                )
        elif isinstance(message, DeliverHeldGap):
            pubend = self._pubends[broker, session, message.number]
            place = pubend, message.end
            self.send(
                story,
                broker,
                session,
                key,
                place,
                message.held,
                careful=message.careful,
                attempts=message.attempts,
                gap=True,
            )
        elif isinstance(message, Taken):
            for number in self._takes.get((broker, session, message.sid, message.first), ()):
                taken = story.numbers.get(number)
                if taken is not None and taken.key == key and number not in message.lost:
                    taken.taken = True
        elif isinstance(message, HoldLost):
            for holds in message.holds:
                for number in holds.numbers:
                    if number in story.numbers:
                        for looker in self.lookers:
                            looker.losing(story, story.numbers[number])
                        story.numbers[number].lost = True
        else:
            self._settled(story, key, message)

    def send(
        self,
        story: Story,
        broker: str,
        session: int,
        key: Key,
        place: Place,
        number: int,
        *,
        careful: bool,
        attempts: int,
        gap: bool = False,
    ) -> None:
        """A delivery is sent."""
        sid = next(sid for (name, at, sid), who in self.at.items() if (name, at, who) == (broker, session, key))
        if sid != story.sid:  # nobody was left of one that is not durable, or it has lapsed: another one has its name
            story.lapsed, story.sid = True, sid
            story.numbers.clear()
            story.open.clear()
        former = story.numbers.get(number)
        if former is not None:
            self.fail(f"{story.lane} gives number {number} to {place}, which it gave to {former.place}")
        boots, now = self.world.brokers[broker].boots, self.world.now
        sent = Sent(number, place, key, (broker, session), now, boots, careful, attempts, gap, extended_at=now)
        events = story.at(place)
        for looker in self.lookers:
            looker.sending(story, events, sent)
        story.numbers[number] = sent
        events.sent.append(sent)
        if gap:
            story.gaps += 1
        else:
            story.open[place] = None

    lookers: tuple[Looker, ...] = ()
    """Whoever looks at each delivery and verdict."""

    def _settled(self, story: Story, key: Key, message: Settled) -> None:
        named = key[0], story.row.number, message.number
        settle = self._settles.get(named)
        if settle is None:
            return
        lost = frozenset(number for holds in message.lost for number in holds.numbers)
        former = self._answers.get(named)
        if message.uncertain:
            return
        if former is not None and former != lost:
            self.fail(
                f"{story.lane} answers settlement {message.number} of {key} with {sorted(lost)} lost, and had answered"
                f" it with {sorted(former)} lost"
            )
        self._answers[named] = lost
        for verdict in settle.verdicts:
            for number in verdict.holds.numbers:
                sent = story.numbers.get(number)
                if sent is not None and number not in lost:
                    sent.answered = True
                    for looker in self.lookers:
                        looker.judged(story, sent)
                    if verdict.kind is Kind.ACKNOWLEDGE:
                        story.at(sent.place).settled = True

    def left(self, broker: str, session: int) -> None:
        """A session is over."""
        self._left[broker, session] = None
        for (name, number, sid), key in list(self.at.items()):
            if (name, number) == (broker, session):
                del self.at[name, number, sid]
                self._leave(broker, key, by_crash=False)

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over."""
        for story in self.stories.values():
            if story.broker == broker.name:
                story.crashed_at = self.world.now
                story.open.clear()
                story.gaps = 0
                for absences in story.absences.values():
                    if absences and absences[-1].until < 0:
                        absences[-1].crashed = True
        for (name, number, sid), key in list(self.at.items()):
            if name == broker.name:
                del self.at[name, number, sid]
                self._leave(broker.name, key, by_crash=True)

    def booted(self, broker: SimBroker) -> None:
        """It serves again."""
        for story in self.stories.values():
            if story.broker == broker.name:
                for absences in story.absences.values():
                    if absences and absences[-1].until < 0:
                        absences[-1].booted_at = self.world.now

    def _leave(self, broker: str, key: Key, *, by_crash: bool) -> None:
        story = self._of.get(key)
        if story is None or story.broker != broker:
            return
        absences = story.absences.setdefault(key, [])
        if not absences or absences[-1].until >= 0:
            absences.append(Absence(self.world.now, by_crash, crashed=by_crash))

    def join(self, broker: str, session: int, sid: int, key: Key) -> None:
        """A consumer takes part in a session from now on."""
        self.at[broker, session, sid] = key
        absences = self._of[key].absences.get(key)
        if absences and absences[-1].until < 0:
            absences[-1].until = self.world.now

    # How it is done.

    def _logged(self, logged: Logged) -> None:
        for story in self.stories.values():
            self._note(story, logged)

    @staticmethod
    def _note(story: Story, logged: Logged) -> None:
        if story.row.matches(logged):
            story.at((logged.pubend, logged.tick)).logged = logged


class Looker(Judge):
    """Looks at each delivery before it is noted, and at each verdict."""

    def sending(self, story: Story, events: Events, sent: Sent) -> None:
        """Something is about to be sent."""

    def losing(self, story: Story, sent: Sent) -> None:
        """A consumer is told that it holds something no more."""

    def judging(self, story: Story, events: Events, sent: Sent) -> None:
        """A broker receives a verdict."""

    def judged(self, story: Story, sent: Sent) -> None:
        """It has answered that it took effect."""

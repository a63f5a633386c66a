"""Shared subscriptions: each event is settled once, held by one consumer, marked if it may come again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gapless.core.ports import Delete, Set
from gapless.core.wire.messages import Kind, StartAt
from gapless_shb.core.shared.settling import ROSTER
from gapless_shb.core.shared.window import CHUNKS
from gapless_sim.oracles.judge import Judge
from gapless_sim.oracles.reachability import Reach
from gapless_sim.oracles.sharing_book import Absence, Events, Looker, Sent, SharingBook, Story
from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.producer import key_of
from gapless_sim.world.sharing import Outcome

if TYPE_CHECKING:
    from gapless.core.network import facts as routing
    from gapless.core.ports import Operation
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.sharing import Holding, SharedConsumer

SOONER = 0.94
"""A broker's clock may be faster: so much earlier a time of its may be over."""
QUARANTINE = 15 * SECOND
"""For so long at most what may be in somebody's hands is kept for those of a broker's former life."""
CEILING = 3 * SECOND
"""What is published later than this after a crash was not sent before it, nor can it be thought to have been."""


class J11Settled(Looker):
    """What is settled never comes again. An event is in one consumer's hands.

    It may be in two where the first one stayed away for longer than its events are kept for it, or its hold is over.
    """

    name = "J11"

    def __init__(self, model: Model, book: SharingBook) -> None:
        super().__init__(model)
        self._book = book

    def sending(self, story: Story, events: Events, sent: Sent) -> None:
        """Nothing is sent after the answer that it is settled."""
        if events.settled and not story.lapsed and story.row.durable:
            self.fail(f"{story.lane} sends {sent.place} again to {sent.key}, after it was answered to be settled")

    def losing(self, story: Story, sent: Sent) -> None:
        """Who works on something keeps it until its hold is over, or it was away for too long."""
        consumer = sent.consumer
        if consumer is None or sent.said is not None or story.row.ended or not consumer.holds(sent.number):
            return
        if not self._may_be_lost(story, sent):
            self.fail(f"{story.lane} takes {sent.place} from {sent.key}, which holds it under {sent.number}")

    def judging(self, story: Story, events: Events, sent: Sent) -> None:
        """Notes who works on it, under a later delivery."""
        later = (each for each in events.handed if each.number > sent.number and each.key != sent.key)
        sent.rival = next(
            (
                each
                for each in later
                if each.consumer is not None
                and each.consumer.holds(each.number)
                and each.said is None
                and not self._may_be_lost(story, each)
            ),
            None,
        )

    def judged(self, story: Story, sent: Sent) -> None:
        """The verdict of somebody who had lost it takes no effect."""
        if sent.rival is not None and not story.row.ended:
            self.fail(
                f"{story.lane} takes a verdict of {sent.key} on {sent.place} under {sent.number}, and"
                f" {sent.rival.key} held it under {sent.rival.number}"
            )

    def held(self, consumer: SharedConsumer, holding: Holding) -> None:
        """Nobody else works on it, and nobody was told that it is settled."""
        story = self._book.story(consumer)
        events = story.at(holding.place)
        what = f"{consumer.lane} was handed {holding.place}"
        if holding.gap is None:
            self._judge_event(events, holding, what)
        else:
            self._judge_gap(story, holding, what)
        if events.told and not story.lapsed and story.row.durable:
            self.fail(f"{what} again, after somebody was told that it is settled")
        if story.row.ended:
            return
        for other in events.handed:
            if other.number == holding.number or other.consumer is None or other.said is not None:
                continue
            if other.consumer.holds(other.number) and not self._may_be_lost(story, other):
                self.fail(f"{what} under {holding.number}, and {other.consumer.lane} holds it under {other.number}")

    def verdict_answered(self, consumer: SharedConsumer, holding: Holding) -> None:
        """An event is settled once."""
        story = self._book.story(consumer)
        events = story.at(holding.place)
        if holding.said is not Kind.ACKNOWLEDGE:
            return
        if holding.outcome is Outcome.DURABLE:
            if events.told and not story.lapsed and story.row.durable:
                self.fail(f"{consumer.lane} was told that {holding.place} is settled, as somebody was before")
            events.told = events.settled = True
        elif holding.outcome is Outcome.LOST:
            events.told_lost = True
            if events.told and not any(
                each.answered and each.number != holding.number and each.said is Kind.ACKNOWLEDGE
                for each in events.sent
            ):
                self.fail(f"{consumer.lane} was told that it had lost {holding.place}, and its verdict took effect")
        else:
            events.unknown = True

    def _judge_event(self, events: Events, holding: Holding, what: str) -> None:
        key = key_of(holding.body)
        logged = self.model.histories[holding.pubend].events.get(holding.tick)
        if logged is None or logged.publication.key != key:
            self.fail(f"{what}, publication {key}, which is not logged there")
        if events.logged is None:
            self.fail(f"{what}, publication {key}, which does not match")

    def _judge_gap(self, story: Story, holding: Holding, what: str) -> None:
        """A gap is of what its pubend has lost, and a policy or a lapse has caused it."""
        gap, history = holding.gap, self.model.histories.get(holding.pubend)
        if gap is None or history is None or not history.sound or gap.reason == "too_large":
            return
        if history.has_between(history.lost, gap.end):
            self.fail(f"{what}, a gap from {gap.start}, and lost is up to {history.lost}")
        early = self.model.ages.is_early(history, min(gap.end, history.lost))
        counted = self.model.members.get(holding.pubend, {}).get(self.model.shb_of.get(story.broker, ""), 0)
        at_start = story.start is StartAt.EARLIEST and not history.has_between(
            max(story.lost_at_start.get(holding.pubend, 0), counted), gap.end
        )
        if not (early or story.lapsed or at_start or not story.row.durable or gap.start < counted):
            self.fail(f"{what}, a gap from {gap.start} ({gap.reason}), and nothing is released early")

    def _may_be_lost(self, story: Story, sent: Sent) -> bool:
        """Whether a consumer that holds something may hold it no more, and need not know it yet."""
        now, habits = self.world.now, sent.consumer.habits if sent.consumer is not None else None
        if habits is None or story.lapsed or sent.lost:
            return True
        if habits.hold_ms and now - max(sent.sent_at, sent.extended_at) >= habits.hold_ms * MILLISECOND * SOONER:
            return True
        resume = habits.resume_ms * MILLISECOND
        return any(
            self._is_long(absence, resume)
            for absence in story.absences.get(sent.key, ())
            if absence.until < 0 or absence.until >= sent.sent_at
        )

    def _is_long(self, absence: Absence, resume: int) -> bool:
        end = self.world.now if absence.until < 0 else absence.until
        if absence.by_crash:
            return absence.booted_at >= 0 and end - absence.booted_at >= QUARANTINE * SOONER
        most = min(resume, QUARANTINE) if absence.crashed else resume
        return end - absence.since >= most * SOONER


class J11Released(Judge):
    """An SHB is done with what is settled durably, and with nothing else."""

    name = "J11"

    def __init__(self, model: Model, book: SharingBook) -> None:
        super().__init__(model)
        self._book = book
        self._judged: dict[tuple[int, str], int] = {}

    def progressed(self, broker: str, progress: routing.Progress) -> None:
        """It says up to where."""
        if broker in self.model.damaged_brokers:
            return
        for story in self._book.stories.values():
            row = story.row
            if story.broker != broker or row.ended or not row.durable or story.began_at < 0 or story.lapsed:
                continue
            judged = self._judged.get((row.number, progress.pubend), 0)
            if progress.released <= judged:
                continue
            self._judged[row.number, progress.pubend] = progress.released
            for place, events in story.events.items():
                if place[0] == progress.pubend and judged < place[1] <= progress.released:
                    self._judge(story, events, progress.released)

    def _judge(self, story: Story, events: Events, released: int) -> None:
        if not is_owed(self.model, story, events) or events.settled:
            return
        if is_expired(self.model, events) or is_lost(self.model, events):
            return
        boots = self.world.brokers[story.broker].boots
        said = [each for each in events.sent if each.said is Kind.ACKNOWLEDGE]
        what = (
            f"{story.broker} is done with {events.place[0]} up to {released}, and {story.lane} with {events.place[1]}"
        )
        if not said:
            self.fail(f"{what} is not: nobody has acknowledged it")
        if all(each.said_in == boots and not each.answered and self._book.has_session(each.said_at) for each in said):
            self.fail(f"{what} is not durably: {said[0].key} has no answer yet")


class J12Marked(Looker):
    """What was handed out before, or may have been, comes marked, and nothing else does. Attempts are counted."""

    name = "J12"

    def __init__(self, model: Model, book: SharingBook) -> None:
        super().__init__(model)
        self._book = book

    def sending(self, story: Story, events: Events, sent: Sent) -> None:
        """What is marked may have been sent before, and attempts are of those who had it in hand."""
        if sent.is_gap:
            return
        # A crash before the answer to Take lets it be said once more.
        in_hand = sum(max(each.takes, each.holding is not None, each.left) for each in events.sent)
        if sent.attempts > in_hand:
            self.fail(
                f"{story.lane} sends {sent.place} to {sent.key} and counts {sent.attempts} attempts; in hand it was"
                f" {in_hand} times"
            )
        counted = sum(each.taken or (each.answered and each.said is Kind.RETRY) for each in events.sent)
        if sent.attempts < counted and story.row.durable and not story.lapsed:
            self.fail(
                f"{story.lane} sends {sent.place} to {sent.key} and counts {sent.attempts} attempts; {counted} were"
                " durable before"
            )
        if sent.careful and not events.sent and not self._may_doubt(story, events):
            self.fail(f"{story.lane} sends {sent.place} to {sent.key} marked, and it was never sent to anybody")
        self._judge_alone(story, events, sent)

    def held(self, consumer: SharedConsumer, holding: Holding) -> None:
        """It is marked, and counted."""
        story = self._book.story(consumer)
        if holding.gap is not None or not story.row.durable or story.lapsed:
            return
        events = story.at(holding.place)
        before = [each for each in events.handed if each.number != holding.number]
        what = f"{consumer.lane} was handed {holding.place}"
        if before and not holding.redelivered:
            self.fail(f"{what}, as {before[-1].key} was before, and it is not marked")
        sent = story.numbers.get(holding.number)
        if sent is not None and holding.count <= sent.attempts:
            self.fail(f"{what}, which counts {holding.count}, and {sent.attempts} attempts were sent with it")
        if sent is not None and sent.careful and not sent.taken:
            self.fail(f"{what}, which may have been handed out before, and no attempt was counted")

    def _may_doubt(self, story: Story, events: Events) -> bool:
        """Whether its broker may think that it was sent in an earlier life."""
        if story.crashed_at < 0 or events.logged is None:
            return False
        clock = self.world.options.clock
        calm = not (clock.jumps or clock.offset_ms or clock.drift_ppm)
        return not calm or events.logged.publication.published_at <= story.crashed_at + CEILING

    def _judge_alone(self, story: Story, events: Events, sent: Sent) -> None:
        """What a consumer died with is all that the next one has in hand."""
        died = [each for each in events.sent if self._died_with(story, each, sent)]
        holds = [each for each in story.numbers.values() if each.session == sent.session and self._is_held(story, each)]
        if died:
            sent.alone = True
            if holds:
                self.fail(
                    f"{story.lane} sends {sent.place} to {sent.key}, which holds {len(holds)} more; {died[0].key} died"
                    " with it"
                )
        elif any(each.alone for each in holds):
            self.fail(f"{story.lane} sends {sent.place} to {sent.key}, which has to have what it holds alone")

    @staticmethod
    def _is_held(story: Story, each: Sent) -> bool:
        consumer = story.consumers.get(each.key)
        hold_ms = 0 if consumer is None else consumer.habits.hold_ms
        return each.said is None and not each.lost and not each.left and not hold_ms

    @staticmethod
    def _died_with(story: Story, each: Sent, sent: Sent) -> bool:
        """Whether its broker has counted that somebody died with it: it was about to hand it out, and said nothing."""
        consumer = story.consumers.get(each.key)
        return (
            each.taken
            and each.key != sent.key
            and each.said is None
            and not each.lost
            and not each.left
            and each.boots == sent.boots
            and consumer is not None
            and not consumer.habits.hold_ms
        )


class J10Windows(Judge):
    """Of a shared subscription no more is unsettled than its window has room for, and its rows are as few."""

    name = "J10"

    def __init__(self, model: Model, book: SharingBook) -> None:
        super().__init__(model)
        self._book = book
        self._chunks: dict[tuple[str, int], dict[bytes, None]] = {}
        self._rosters: dict[tuple[str, int], dict[bytes, None]] = {}

    def checkpoint(self) -> None:
        """Looks at all of them."""
        for story in self._book.stories.values():
            most = story.row.window + story.gaps
            given = sum(not is_expired(self.model, story.at(place)) for place in story.open)
            if given > most and not story.row.ended:
                self.fail(f"{story.lane} has given out {given} events, and has room for {story.row.window}")
            key = story.broker, story.sid
            chunks, rosters = len(self._chunks.get(key, ())), len(self._rosters.get(key, ()))
            if chunks > story.row.window:
                self.fail(f"{story.lane} has {chunks} rows of chunks, and a window of {story.row.window}")
            if rosters > len(story.consumers):
                self.fail(f"{story.lane} has {rosters} rows of consumers, and had {len(story.consumers)}")

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """Counts the rows."""
        for operation in operations:
            if isinstance(operation, (Set, Delete)) and operation.table in {CHUNKS, ROSTER}:
                rows = self._chunks if operation.table == CHUNKS else self._rosters
                kept = rows.setdefault((broker.name, int.from_bytes(operation.key[:8], "big")), {})
                if isinstance(operation, Set):
                    kept[operation.key] = None
                else:
                    kept.pop(operation.key, None)


class V1SharedDelivery(Judge):
    """In the liveness phase every event of a shared subscription is settled."""

    name = "V1"

    def __init__(self, model: Model, book: SharingBook) -> None:
        super().__init__(model)
        self._book = book
        self._reach = Reach(model)

    def settled(self) -> bool:
        """Whether nothing is left."""
        return next(self._waiting(), None) is None

    def unsettled(self) -> str:
        """What is left."""
        return "; ".join(self._waiting())

    def is_waiting(self, story: Story) -> bool:
        """Whether something of a subscription is not settled."""
        return next(self._of(story), None) is not None

    def waits_for_others(self, holding: Holding) -> bool:
        """Whether something of a subscription is not settled beside what somebody is busy with."""
        return any(
            not self._is_done(story, events) and events.place != holding.place
            for story in self._book.stories.values()
            if holding in (each.holding for each in story.at(holding.place).sent)
            for events in story.events.values()
            if is_owed(self.model, story, events) or events.sent
        )

    def is_needed(self, pubend: str, homes: dict[str, None]) -> bool:
        """Whether a shared subscription at one of these brokers needs something of a pubend."""
        for story in self._book.stories.values():
            if story.broker not in homes or self._is_gone(story):
                continue
            consumers = [each for each in story.consumers.values() if each.alive and each.attached]
            if story.row.ended or story.began_at < 0 or not consumers:
                return True
            if any(not self._is_served(story, each) for each in consumers):
                return True
            if any(not self._is_done(story, events) for (of, _), events in story.events.items() if of == pubend):
                return True
        return False

    def _is_gone(self, story: Story) -> bool:
        """Whether it was removed, unless the request of somebody who died may have made it anew."""
        was_heard = all(each.attached or each.error is not None for each in story.consumers.values())
        return story.row.removed and was_heard

    def _waiting(self) -> Iterator[str]:
        for story in self._book.stories.values():
            yield from self._of(story)

    def _of(self, story: Story) -> Iterator[str]:
        row = story.row
        if row.ended or not row.durable or story.began_at < 0 or story.broker in self.model.damaged_brokers:
            return
        consumers = [each for each in story.consumers.values() if each.alive]
        if not any(self._is_served(story, each) for each in consumers):
            return
        if not any(each.attached for each in consumers):
            yield f"{story.lane} lets nobody take part"
            return
        for (pubend, tick), events in story.events.items():
            history = self.model.histories[pubend]
            if not history.sound or history.has_hole or not self._reach.brokers_meet(history.broker, story.broker):
                continue
            if not self._is_done(story, events) and (is_owed(self.model, story, events) or events.sent):
                key = None if events.logged is None else events.logged.publication.key
                told = ", and whoever acknowledged it was told that it was lost" if events.told_lost else ""
                yield f"{story.lane} has not settled publication {key} at {pubend} {tick}{told}"

    def _is_done(self, story: Story, events: Events) -> bool:
        if events.told or events.settled or events.unknown:
            return True
        if is_expired(self.model, events) or is_lost(self.model, events):
            return True
        if story.lapsed and not any(self._is_in_hand(each) for each in events.sent):
            return True
        if events.logged is None:
            return not any(self._is_in_hand(each) for each in events.sent)
        if not events.sent and not is_owed(self.model, story, events):
            return True
        # Whoever acknowledged it, and is gone, may have been told nothing.
        return any(self._is_silent(each) for each in events.sent)

    @staticmethod
    def _is_in_hand(sent: Sent) -> bool:
        return sent.consumer is not None and sent.consumer.holds(sent.number)

    @staticmethod
    def _is_silent(sent: Sent) -> bool:
        holding, consumer = sent.holding, sent.consumer
        if holding is None or consumer is None or holding.said is not Kind.ACKNOWLEDGE:
            return False
        return holding.outcome is None and not consumer.alive

    def _is_served(self, story: Story, consumer: SharedConsumer) -> bool:
        return self._reach.serves(story.broker) and self._reach.is_open(consumer.client.name, story.broker)


def is_owed(model: Model, story: Story, events: Events) -> bool:
    """Whether an event is owed to a subscription: its application knew that this exists when it was published."""
    logged = events.logged
    if logged is None or story.began_at < 0:
        return False
    counted = model.members.get(logged.pubend, {}).get(model.shb_of.get(story.broker, ""))
    if counted is None or logged.tick <= counted:
        return False
    return logged.publication.published_at > story.began_at


def is_expired(model: Model, events: Events) -> bool:
    """Whether an event may have expired by now: its broker may show any time that clocks here do."""
    if events.logged is None:
        return False
    expiration = events.logged.publication.headers.get("expiration", 0)
    clocks = max(_latest(broker, model.world.now) for broker in model.world.brokers.values())
    return bool(expiration) and expiration <= clocks + 1


def _latest(broker: SimBroker, now: int) -> int:
    """The latest time that a broker's wall clock has ever shown, or about that: it may have been set back."""
    clock = broker.node_clock
    return max(clock.wall(now) - sum(clock.jumps[at:]) for at in range(len(clock.jumps) + 1))


def is_lost(model: Model, events: Events) -> bool:
    """Whether a pubend has given an event up."""
    pubend, tick = events.place
    history = model.histories[pubend]
    if tick > history.lost:
        return False
    return model.ages.is_early(history, tick) or not history.sound

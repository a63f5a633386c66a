"""An application that reads its subscription by ranges: it plans, reads, commits and acknowledges, batch by batch.

To the oracles it is a consumer like others: what it reads of a range is what it takes, the silence behind the last
event is the rest of the range, and its token goes into its database with the effects. So everything that they hold of
consumers they hold of it. What they cannot see it looks at itself: a range that is read again holds what it held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from gapless.core.client import Delivery, Gap, Silence
from gapless.core.client.consuming.subscription import SubscribeOptions, SubscriptionPhase
from gapless.core.client.link.effects import Attached
from gapless.core.wire.messages import Target
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import SubscriptionError
from gapless_sim.recording.observation import Violation
from gapless_sim.world.options import MILLISECOND

if TYPE_CHECKING:
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.messages import AttachedTo, Ticks
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.choices import Stream
    from gapless_sim.world.consumer import Consumer, Row

POLL_MS = 500
ANSWER_LIMIT_MS = 5000
FEW = 3
"""So many events are in a batch of whoever could not read a larger one in time."""
SOMETIMES = (
    "ranges.acknowledged",
    "ranges.batch bounded",
    "ranges.batch committed",
    "ranges.gap in a range",
    "ranges.nothing to read",
    "ranges.pubend found later",
    "ranges.range given up",
    "ranges.read again",
    "ranges.read again with a gap",
)


class Standing:
    """In the place of the core that a consumer has."""

    phase = SubscriptionPhase.ATTACHED
    sid = 0
    former_sids: tuple[int, ...] = ()
    seal = b""
    home = ""


class Ranger:
    """One subscription, read by ranges in one process."""

    by_ranges = True
    commits = is_marked = waits = False

    def __init__(self, client: SimClient, row: Row, draws: Stream, token: CheckpointToken | None = None) -> None:
        """`token`: an older one than the database has, where it goes back to on purpose."""
        self.client = client
        self.row = row
        self.wanted = row.wanted(token=token)
        self._goes_back_to = token
        self.attached = False
        self.over = False
        self.stopped = False
        self.error: GaplessError | None = None
        self.core = Standing()
        self.on_over: Callable[[Ranger, GaplessError], None] | None = None
        self.eager = False
        """Whether it commits, and acknowledges, whatever it reads."""
        self._draws = draws
        self._answer: Attached | None = None
        self.position: dict[PubendId, Tick] = {}
        self._planned: dict[PubendId, Tick] = {}
        self._todo: deque[tuple[PubendId, Tick, Tick]] = deque()
        self._reading: Reading | None = None
        self._takes_few = False
        """Whether its batches are small from now on."""
        client.world.observe.subscribing(self)
        self.number = client.core.ranges.attach(self.wanted, client.monotonic())
        client.own(self.number, self)
        client.consumers[self.number] = cast("Consumer", self)
        client.schedule_pump()

    @property
    def lane(self) -> str:
        """What it is called in a trace."""
        return f"{self.client.name}:{self.row.name}"

    @property
    def target(self) -> Target:
        """Its subscription, by id: one that is made anew is another."""
        assert self._answer is not None
        return Target("", self._answer.sid, self._answer.generation, self.core.home)

    def token(self) -> CheckpointToken:
        """Behind everything that was committed or is about to be."""
        assert self._answer is not None
        network, answer = self.client.core.network, self._answer
        return CheckpointToken(network, self.position, answer.sid, answer.generation, self.core.seal, self.core.home)

    # Being there.

    def on_answered(self, result: AttachedTo) -> None:
        """It has its subscription, and knows where that stands."""
        self._answer = Attached(result.sid, result.generation, created=False)
        self.core.sid, self.core.seal, self.core.home = result.sid, result.seal, result.home
        self.position = {position.pubend: position.tick for position in result.positions}
        token = self._goes_back_to or self.row.token
        self.position = {**(token.ticks if token else {}), **self.position}
        self.attached = True
        self.row.created = True
        self.row.owner = cast("Consumer", self)
        self.client.world.observe.attached(self, self._answer, self.position)
        if self.row.token is None or self._goes_back_to is not None:
            self.row.token = self.token()
        if self.eager:
            self._acknowledge_committed()
        self._look()

    def on_failed(self, error: GaplessError) -> None:
        """Whatever it asked last was refused: it starts anew, or is given up."""
        if self.over:
            return
        self.over = True
        self.error = error
        self.client.consumers.pop(self.number, None)
        self.client.world.observe.lost_subscription(self, error)
        if self.on_over is not None:
            self.on_over(self, error)

    def _ask(self, number: int, answered: Callable[[Any], None]) -> None:
        def on_answered(result: Any) -> None:
            self.client.disown(number)
            if not self.over:
                answered(result)

        self.client.ask(number, on_answered, self.on_failed)

    # Planning.

    def _look(self) -> None:
        ranges = self.client.core.ranges
        self._ask(ranges.heads(self.target, self.position, POLL_MS, self.client.monotonic()), self._on_heads)

    def _on_heads(self, answer: Ticks) -> None:
        found = {position.pubend: position.tick for position in answer.positions}
        if any(pubend not in self.position for pubend in found):
            self._learn()
            return
        if all(tick <= self.position[pubend] for pubend, tick in found.items()):
            self.client.world.sometimes("ranges.nothing to read")
            self.later(self._look, 10)
        elif self._takes_few:
            self._ask_bound(FEW, None)
        elif not self.eager and self._draws.chance(0.4):
            most = self._draws.between(1, 5)
            self._ask_bound(most, 200 * most if self._draws.chance(0.3) else None)
        else:
            self._plan(found)

    def _ask_bound(self, events: int, size: int | None) -> None:
        number = self.client.core.ranges.bound(self.target, self.position, events, size, self.client.monotonic())
        self.client.world.sometimes("ranges.batch bounded")
        self._ask(number, self._on_bound)

    def _on_bound(self, answer: Ticks) -> None:
        self._plan({p.pubend: p.tick for p in answer.positions if p.pubend in self.position})

    def _learn(self) -> None:
        """A pubend was found later than the subscription began: where it begins there, attaching again shows."""
        plain = SubscribeOptions(self.row.topics, self.row.name, self.row.selector, no_local=self.row.no_local)
        self._ask(self.client.core.ranges.attach(plain, self.client.monotonic()), self._on_learnt)

    def _on_learnt(self, answer: AttachedTo) -> None:
        assert self._answer is not None
        if answer.sid != self._answer.sid:
            self.on_failed(SubscriptionError("the subscription was made anew"))
            return
        for position in answer.positions:
            if position.pubend not in self.position:
                self.client.world.sometimes("ranges.pubend found later")
                self.position[position.pubend] = position.tick
                self._tell(Silence(position.pubend, 0, position.tick))
        self.later(self._look, 1)

    def _plan(self, ends: dict[PubendId, Tick]) -> None:
        self._planned = ends
        self._todo.extend((pubend, self.position[pubend], tick) for pubend, tick in ends.items())
        self._todo = deque(todo for todo in self._todo if todo[1] < todo[2])
        if not self.eager and self._draws.chance(0.2):  # its workers are busy
            self.later(self._next, 1 + self._draws.draw(3000))
        else:
            self._next()

    # Reading.

    def _next(self) -> None:
        if not self._todo:
            self._commit()
            return
        self._reading = Reading(self, *self._todo.popleft(), self._on_read, self._give_up_range)

    def _give_up_range(self) -> None:
        """It takes too long, perhaps at a broker with little memory: reading all at once it would come nowhere."""
        self._takes_few = True
        self._next()

    def _on_read(self, reading: Reading) -> None:
        """All of a range is here: it is taken; now and then it is read once more, as a second attempt does."""
        if self._draws.chance(0.2):
            pubend, lo, hi = reading.pubend, reading.lo, reading.hi
            self.client.world.sometimes("ranges.read again")
            self._reading = Reading(
                self, pubend, lo, hi, lambda again: self._on_read_again(reading, again), lambda: self._take(reading)
            )
        else:
            self._take(reading)

    def _on_read_again(self, first: Reading, again: Reading) -> None:
        check_same(first, again)
        self.client.world.hits["ranges.read again with a gap"] += bool(again.gaps)
        self._take(first)

    def _take(self, reading: Reading) -> None:
        reached = reading.lo
        for part in reading.parts:
            self._tell(part)
            reached = part.end if isinstance(part, Gap) else part.ticks[-1]
            self.client.world.hits["ranges.gap in a range"] += isinstance(part, Gap)
        if reached < reading.hi:
            self._tell(Silence(reading.pubend, reached, reading.hi))
        self.position[reading.pubend] = max(reading.hi, reached)
        self._next()

    def _tell(self, item: Delivery | Gap | Silence) -> None:
        if isinstance(item, Silence) and item.start >= item.end:
            return
        self.client.world.observe.handed_out(self, item)

    # Committing.

    def _commit(self) -> None:
        if self.row.owner is not cast("Consumer", self):
            self.on_failed(SubscriptionError("another process reads it"))
            return
        if self.row.token is not None:
            self.row.tokens.append(self.row.token)
            del self.row.tokens[:-16]
        self.row.token = self.token()
        self.client.world.observe.committed(self, self.row.token)
        self.client.world.sometimes("ranges.batch committed")
        if self.eager or self._draws.chance(0.7):
            self._acknowledge()
        self.later(self._look, 1 + self._draws.draw(300))

    def _acknowledge(self) -> None:
        positions = dict(self.position)
        self.client.world.observe.acknowledged(self, positions)
        number = self.client.core.ranges.settle(self.target, self.core.seal, positions, self.client.monotonic())
        self._ask(number, lambda _: self.client.world.sometimes("ranges.acknowledged"))

    def begin_liveness(self) -> None:
        """Nothing goes wrong any more: it reads, and acknowledges, all there is."""
        self.eager = True
        if self.attached and not self.over:
            self._acknowledge_committed()

    def leave(self) -> None:
        """Reads no more; another reader of the row may."""
        if not self.over:
            self.over = True
            self.client.disown(self.number)
            if self._reading is not None:
                self.client.disown(self._reading.number)
                self.client.core.ranges.end_read(self._reading.number, self.client.monotonic())
            self.client.schedule_pump()

    def _acknowledge_committed(self) -> None:
        if self.row.token is not None:
            positions = dict(self.row.token.ticks)
            self.client.world.observe.acknowledged(self, positions)
            number = self.client.core.ranges.settle(self.target, self.core.seal, positions, self.client.monotonic())
            self._ask(number, lambda _: None)

    def later(self, call: Callable[[], None], milliseconds: int) -> None:
        """Calls after a while, unless it is over by then."""
        world = self.client.world

        def go_on() -> None:
            if not self.over:
                call()
                self.client.pump()

        at = max(world.now + milliseconds * MILLISECOND, self.client.paused_until)
        world.at(at, self.client.name, "range", go_on, life=self.client.life)


class Reading:
    """One range that is being read."""

    def __init__(
        self,
        ranger: Ranger,
        pubend: PubendId,
        lo: Tick,
        hi: Tick,
        done: Callable[[Reading], None],
        given_up: Callable[[], None],
    ) -> None:
        self.pubend = pubend
        self.lo = lo
        self.hi = hi
        self.parts: list[Delivery | Gap] = []
        self.ranger = ranger
        self._done = done
        self._given_up = given_up
        client = ranger.client
        self.number = client.core.ranges.read(ranger.target, pubend, lo, hi, client.monotonic())
        client.own(self.number, self)
        client.schedule_pump()
        self._over = False
        ranger.later(self.give_up, ANSWER_LIMIT_MS)

    def give_up(self) -> None:
        """Its pubend may be gone for good: the rest of the batch does not wait for it."""
        if not self._over:
            self._over = True
            self.ranger.client.disown(self.number)
            self.ranger.client.core.ranges.end_read(self.number, self.ranger.client.monotonic())
            self.ranger.client.world.sometimes("ranges.range given up")
            self._given_up()

    @property
    def gaps(self) -> list[tuple[Tick, Tick]]:
        """What may be missing."""
        return [(part.start, part.end) for part in self.parts if isinstance(part, Gap)]

    @property
    def ticks(self) -> list[Tick]:
        """What is there."""
        return [tick for part in self.parts if isinstance(part, Delivery) for tick in part.ticks]

    def on_arrived(self) -> None:
        """There is something to take."""
        client = self.ranger.client
        ranges = client.core.ranges
        while (part := ranges.take(self.number, client.monotonic())) is not None:
            self.parts.append(part)
        client.schedule_pump()
        if ranges.is_complete(self.number):
            self._over = True
            client.disown(self.number)
            ranges.end_read(self.number, client.monotonic())
            if not self.ranger.over:
                self._done(self)

    def on_failed(self, error: GaplessError) -> None:
        """It cannot be read."""
        self.ranger.on_failed(error)


def check_same(first: Reading, again: Reading) -> None:
    """A range that is read again holds the same, but for what has become a gap. Raises Violation."""

    def within(ticks: list[Tick], gaps: list[tuple[Tick, Tick]]) -> list[Tick]:
        return [tick for tick in ticks if not any(lo < tick <= hi for lo, hi in gaps)]

    gaps = first.gaps + again.gaps
    if within(first.ticks, gaps) != within(again.ticks, gaps):
        differ = sorted({*first.ticks} ^ {*again.ticks})
        span = f"({first.lo}, {first.hi}] of {first.pubend}"
        raise Violation("I3", f"{first.ranger.lane} read {span} twice, and it differs in {differ[:5]}")

"""The consuming side of an application: a subscription in its database, and a consumer of it in a process.

A `Row` outlives the process; in it the token is committed together with the effects of what was consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gapless.core.client import SubscribeOptions
from gapless.core.client.link import effects as e
from gapless.core.wire.messages import InUse, OnChange, Order, StartAt
from gapless.core.wire.tokens import CheckpointToken
from gapless_sim.world.spelling import respelt

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.consuming.subscription import SubscriptionCore
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.errors import GaplessError
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.world.application import SimClient


@dataclass(slots=True, eq=False)
class Row:
    """A subscription as its application knows it, in its database."""

    number: int
    """Unique over all rows: a name that is used again is another row."""
    client_id: str
    name: str | None
    """None: not durable."""
    topics: tuple[str, ...]
    selector: str
    matches: Callable[[Logged], bool]
    """What `topics` and `selector` mean, written down apart from both."""
    start: StartAt = StartAt.LATEST
    start_token: CheckpointToken | None = None
    """With StartAt.TOKEN: from where it is created."""
    silence: bool = False
    order: Order = Order.PUBEND
    no_local: bool = False
    """Whether it leaves out what its own client publishes; `matches` does so, too."""
    on_change: OnChange = OnChange.ERROR
    """What is to become of the subscription that has its name and selects something else: what `former` knows."""
    former: Row | None = None
    keeps_token: bool = True
    """Whether it resumes with the token it committed; else where it has acknowledged."""
    token: CheckpointToken | None = None
    """Committed with the effects."""
    tokens: list[CheckpointToken] = field(default_factory=list)
    """Older ones that were committed, or kept somewhere."""
    created: bool = False
    """Whether the application knows that it exists."""
    ended: bool = False
    """Whether it was removed, or is given up."""
    owner: Consumer | None = None
    """Who may commit: whoever attached last."""
    asked: int = 0
    """How often it was asked for: the blanks of its selector depend on it."""

    def wanted(
        self, *, in_use: InUse = InUse.ERROR, token: CheckpointToken | None = None, **window: Any
    ) -> SubscribeOptions:
        """What to ask for: to create it, or to resume with the token (or with another one).

        A program may be written anew meanwhile: each time its selector has other blanks. What is to become of a
        subscription that has changed it says each time, too, as a program does.
        """
        selector = respelt(self.selector, self.asked)
        self.asked += 1
        token = token or (self.token if self.keeps_token else None) or (None if self.created else self.start_token)
        if token is None:
            start = StartAt.LATEST if self.created else self.start
            return SubscribeOptions(
                self.topics,
                self.name,
                selector,
                start,
                in_use=in_use,
                order=self.order,
                no_local=self.no_local,
                on_change=self.on_change,
                silence=self.silence,
                **window,
            )
        return SubscribeOptions(
            self.topics,
            self.name,
            selector,
            StartAt.TOKEN,
            positions=dict(token.ticks),
            token_sid=token.sid,
            token_generation=token.generation,
            token_seal=token.seal,
            token_home=token.home,
            in_use=in_use,
            order=self.order,
            no_local=self.no_local,
            on_change=self.on_change,
            silence=self.silence,
            **window,
        )


class Consumer:
    """A subscription in a client's process."""

    by_ranges = False
    """Whether its home knows of it only what it asks, and does not go on in its name."""
    commits = False
    """Whether its home keeps its position."""
    is_marked = False
    """Whether what it may have been handed before is marked."""
    gathers = False
    """Whether it commits all that it was handed when its application says so."""
    recoveries = 0
    """How often its process has had events come again that it was handed."""

    def __init__(
        self,
        client: SimClient,
        row: Row,
        wanted: SubscribeOptions,
        *,
        pace: int = 0,
        portion: int | None = None,
        commit_every: int = 1,
        acknowledges: str = "at once",
    ) -> None:
        """`pace`: nanoseconds between two things taken, 0 for as fast as they come; `portion`: events at once.

        `acknowledges`: "at once" with the commit, "early" before it, "late" what was committed before the
        last time, or "never".
        """
        self.client = client
        self.row = row
        self.wanted = wanted
        self.pace = pace
        self.portion = portion
        self.commit_every = commit_every
        self.acknowledges = acknowledges
        self.attached = False
        self.over = False
        self.stopped = False
        """Whether it takes nothing any more, although it is attached."""
        self.error: GaplessError | None = None
        self.on_attached: Callable[[Consumer], None] | None = None
        self.on_over: Callable[[Consumer, GaplessError], None] | None = None
        self._since_commit = 0
        self._before_last: CheckpointToken | None = None
        self._scheduled = False
        client.world.observe.subscribing(self)
        self.first: Consumer = self
        """The first of several that go on for one another in a process, and have events come again."""
        self.number = self.begin()
        core = client.core.subscription(self.number)
        assert core is not None
        self.core: SubscriptionCore = core
        client.own(self.number, self)
        client.schedule_pump()

    def begin(self) -> int:
        """Asks for the subscription. Returns its number."""
        return self.client.core.subscribe(self.wanted, self.client.monotonic())

    @property
    def waits(self) -> bool:
        """Whether it takes nothing until something else is done, for which any broker may be needed."""
        return False

    @property
    def lane(self) -> str:
        """What it is called in a trace."""
        return f"{self.client.name}:{self.row.name or self.number}"

    def token(self) -> CheckpointToken:
        """The position behind what was handed out."""
        core = self.core
        return CheckpointToken(
            self.client.core.network, core.end_positions(), core.sid, core.generation, core.seal, core.home
        )

    def commit(self) -> None:
        """The effects of everything handed out and the token are committed together."""
        row = self.row
        if self.over or not self.attached or row.owner is not self:
            return  # the database refuses whoever was replaced meanwhile
        token = self.token()
        if row.token is not None:
            row.tokens.append(row.token)
            del row.tokens[:-16]
        row.token = token
        self._since_commit = 0
        self.client.world.observe.committed(self, token)
        if self.acknowledges == "at once":
            self.acknowledge(token.ticks)
        elif self.acknowledges == "late" and self._before_last is not None:
            self.acknowledge(self._before_last.ticks)
        self._before_last = token

    def acknowledge(self, positions: Mapping[PubendId, Tick]) -> None:
        """Says that everything up to here is done with."""
        client = self.client
        client.world.observe.acknowledged(self, positions)
        client.core.acknowledge(self.number, dict(positions), client.monotonic())
        client.schedule_pump()

    def leave(self) -> None:
        """Ends the consumption; the subscription lives on if it is durable."""
        if not self.over:
            self.over = True
            self.client.disown(self.number)
            self.client.core.detach(self.number, self.client.monotonic())
            self.client.schedule_pump()

    def go_on(self, pace: int = 0) -> None:
        """Takes (again), at this pace."""
        self.pace = pace
        self.stopped = False
        self._schedule()

    # What the client says.

    def on_answered(self, attached: e.Attached) -> None:
        """It has its subscription."""
        self.attached = True
        self.row.created = True
        self.row.owner = self
        self.client.world.observe.attached(self, attached, self.core.end_positions())
        if self.row.token is None:
            self.row.token = self.token()
        elif self.acknowledges == "at once" and self._is_own(self.row.token):
            self.acknowledge(self.row.token.ticks)
        if self.on_attached is not None:
            self.on_attached(self)

    def _is_own(self, token: CheckpointToken) -> bool:
        """Whether it is of this subscription, and not of one before it that expired: a client refuses those."""
        core = self.core
        return (token.home, token.sid, token.generation) == (core.home, core.sid, core.generation)

    def on_arrived(self) -> None:
        """There is something to take."""
        self._schedule()

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        self.over = True
        self.error = error
        self.client.world.observe.lost_subscription(self, error)
        if self.on_over is not None:
            self.on_over(self, error)

    # Taking.

    def _schedule(self) -> None:
        if self._scheduled or self.stopped or self.over:
            return
        self._scheduled = True
        world, client = self.client.world, self.client
        at = max(world.now + max(self.pace, 1_000), client.paused_until)
        world.at(at, client.name, "take", self._take, life=client.life)

    def _take(self) -> None:
        self._scheduled = False
        if self.stopped or self.over:
            return
        while self._take_one():
            if self.pace:
                self._schedule()
                break
        self.client.pump()

    def _take_one(self) -> bool:
        item: Item | None = self.client.core.take(self.number, self.client.monotonic(), self.portion)
        if item is None:
            return False
        self.client.world.observe.handed_out(self, item)
        if self.acknowledges == "early":
            self.acknowledge(self.token().ticks)
        self._since_commit += 1
        if self._since_commit >= self.commit_every:
            self.commit()
        return not self.over


def is_alive(consumer: Any) -> bool:
    """Whether a consumer still is one: its process runs, and it has neither left nor failed."""
    client = consumer.client
    return not consumer.over and client.running and client.consumers.get(consumer.number) is consumer

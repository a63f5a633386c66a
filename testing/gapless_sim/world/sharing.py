"""The consuming side of a shared subscription: what its application knows of it, and a consumer in a process.

There is no token, and nothing is in a database. What a consumer is handed it holds until it has settled it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from gapless.core.client import SubscribeOptions
from gapless.core.client.consuming.held import HeldDelivery
from gapless.core.wire.messages import Kind, Sharing, StartAt
from gapless_sim.world.options import MILLISECOND
from gapless_sim.world.spelling import respelt

if TYPE_CHECKING:
    from gapless.core.client.consuming.held import HeldGap
    from gapless.core.client.consuming.sharing import SharedCore
    from gapless.core.client.link import effects as e
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.errors import GaplessError
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.world.application import SimClient

Place = tuple["PubendId", "Tick"]
"""An event, or a gap by its end."""


@dataclass(slots=True, eq=False)
class SharedRow:
    """A shared subscription as its application knows it."""

    number: int
    """Unique over all rows, those of other subscriptions too."""
    client_id: str
    name: str
    topics: tuple[str, ...]
    selector: str
    matches: Callable[[Logged], bool]
    """What `topics` and `selector` mean, written down apart from both."""
    start: StartAt = StartAt.LATEST
    window: int = 4_096
    durable: bool = True
    ended: bool = False
    """Whether somebody has asked for its removal, …"""
    removed: bool = False
    """… and was told that it is gone. Whoever died before that does not know."""
    created: bool = False
    """Whether the application knows that it exists."""
    asked: int = 0
    """How often it was asked for: the blanks of its selector depend on it."""

    def wanted(self, habits: Habits) -> SubscribeOptions:
        """What to ask for."""
        selector = respelt(self.selector, self.asked)
        self.asked += 1
        sharing = Sharing(self.window, self.durable, habits.hold_ms, habits.resume_ms)
        start = StartAt.LATEST if self.created else self.start
        return SubscribeOptions(
            self.topics,
            self.name,
            selector,
            start,
            window_events=habits.credit_events,
            window_bytes=habits.credit_bytes,
            sharing=sharing,
        )


@dataclass(slots=True, frozen=True)
class Habits:
    """How a consumer takes part."""

    hold_ms: int = 0
    """After how long its holds end by themselves; 0: never."""
    resume_ms: int = 5_000
    """For how long its events are kept for it when its link is lost."""
    credit_events: int = 64
    credit_bytes: int = 1 << 20
    portion: int = 1
    """So many events are handed out at once."""
    tasks: int = 4
    """So many events it works on at a time."""


class Outcome(Enum):
    """What became of a verdict, as its application was told."""

    DURABLE = "durable"
    LOST = "lost"
    """It did not take effect: somebody else has the event, or may get it."""
    UNCERTAIN = "uncertain"


@dataclass(slots=True, eq=False)
class Holding:
    """Something that a consumer was handed."""

    pubend: PubendId
    tick: Tick
    """Of a gap: its end."""
    number: int
    """Of the delivery."""
    count: int
    """How often it was handed out, this time included, as it says."""
    redelivered: bool
    gap: HeldGap | None = None
    body: bytes = b""
    said: Kind | None = None
    """What its application has said of it."""
    outcome: Outcome | None = None

    @property
    def place(self) -> Place:
        """What it is."""
        return self.pubend, self.tick


@dataclass(slots=True, eq=False)
class SharedConsumer:
    """A consumer of a shared subscription, in a client's process."""

    client: SimClient
    row: SharedRow
    habits: Habits
    attached: bool = False
    over: bool = False
    error: GaplessError | None = None
    on_attached: Callable[[SharedConsumer], None] | None = None
    on_held: Callable[[SharedConsumer, list[Holding]], None] | None = None
    """Called with what was handed out together."""
    on_over: Callable[[SharedConsumer, GaplessError], None] | None = None
    is_idle: bool = False
    """Whether it takes nothing more."""
    holdings: dict[int, Holding] = field(default_factory=dict)
    """What it was handed and has said nothing of, by the number of the delivery."""
    unanswered: dict[int, list[Holding]] = field(default_factory=dict)
    """What it has settled, by the number of the settlement."""
    number: int = 0

    def begin(self) -> SharedConsumer:
        """Asks to take part."""
        client = self.client
        self.life = client.life
        self.process = client.instance
        self.number = client.core.subscribe(self.row.wanted(self.habits), client.monotonic())
        client.own(self.number, self)
        client.world.observe.sharing(self)
        client.schedule_pump()
        return self

    life: object = None
    process: str = ""
    """The life of its client, which names it at its home together with `number`."""

    @property
    def key(self) -> tuple[str, int]:
        """Names it at its home."""
        return self.process, self.number

    @property
    def alive(self) -> bool:
        """Whether it still is one: its process runs, and it has neither left nor failed."""
        client = self.client
        return not self.over and client.running and client.life is self.life

    @property
    def core(self) -> SharedCore | None:
        """Its protocol core; None if it is over."""
        return self.client.core.shared_subscription(self.number) if self.alive else None

    @property
    def lane(self) -> str:
        """What it is called in a trace."""
        return f"{self.client.name}:{self.row.name}"

    def holds(self, number: int) -> bool:
        """Whether it works on what was delivered under a number, as far as it knows."""
        core = self.core
        return number in self.holdings and core is not None and core.place(number) is not None

    # What its application does.

    def take(self) -> None:
        """Takes as much as it may work on."""
        client, core = self.client, self.core
        if core is None or self.is_idle:
            return
        if client.paused_until > client.world.now:
            client.world.at(client.paused_until, client.name, "take", self.take, life=client.life)
            return
        while len(self.holdings) < self.habits.tasks:
            item = client.core.take_held(self.number, client.monotonic(), self.habits.portion, self.habits.portion)
            if item is None:
                break
            self._hand_out(item)
        client.schedule_pump()

    def _hand_out(self, item: HeldDelivery | HeldGap) -> None:
        if isinstance(item, HeldDelivery):
            handed = [
                Holding(
                    item.pubend,
                    event.tick,
                    event.delivery_number,
                    event.delivery_count,
                    event.redelivered,
                    body=bytes(event.body),
                )
                for event in item.events()
            ]
        else:
            handed = [Holding(item.pubend, item.end, item.delivery_number, item.delivery_count, item.redelivered, item)]
        for holding in handed:
            self.holdings[holding.number] = holding
            self.client.world.observe.held(self, holding)
        if self.on_held is not None:
            self.on_held(self, handed)

    def settle(self, holdings: list[Holding], kind: Kind, delay_ms: int = 0) -> None:
        """Says something of what it holds."""
        client = self.client
        if not self.alive:
            return
        if client.paused_until > client.world.now:
            client.world.at(
                client.paused_until, client.name, "settle", self.settle, holdings, kind, delay_ms, life=client.life
            )
            return
        for holding in holdings:
            if self.holdings.pop(holding.number, None) is None:
                continue
            holding.said = kind
            client.world.observe.settling(self, holding)
            numbers, lost = client.core.settle(self.number, kind, [holding.number], client.monotonic(), delay_ms)
            for number in numbers:
                self.unanswered.setdefault(number, []).append(holding)
            if lost:
                self._answered(holding, Outcome.LOST)
        self.take()
        client.schedule_pump()

    def extend(self) -> None:
        """Says that it still works on all that it holds."""
        client = self.client
        if self.core is not None and self.holdings and client.paused_until <= client.world.now:
            client.core.extend(self.number, list(self.holdings), client.monotonic())
            client.schedule_pump()

    def drain(self) -> None:
        """Takes nothing more, and gives back what it was not handed."""
        self.is_idle = True
        if self.core is not None:
            self.client.core.drain(self.number, self.client.monotonic())
            self.client.schedule_pump()

    def leave(self) -> None:
        """Says goodbye. What it holds is others'."""
        if self.alive:
            self.client.world.observe.leaving(self)
            self.over = True
            self.client.disown(self.number)
            self.client.core.detach(self.number, self.client.monotonic())
            self.client.schedule_pump()

    # What the client says.

    def on_answered(self, attached: e.Attached) -> None:
        """It takes part."""
        self.attached = True
        self.row.created = True
        self.client.world.observe.shared(self, attached)
        if self.on_attached is not None:
            self.on_attached(self)

    def on_arrived(self) -> None:
        """There is something to take."""
        client = self.client
        at = max(client.world.now + MILLISECOND // 1000, client.paused_until)
        client.world.at(at, client.name, "take", self.take, life=client.life)

    def on_settled(self, answered: e.SettlementAnswered) -> None:
        """A settlement is answered."""
        for holding in self.unanswered.pop(answered.number, ()):
            if answered.uncertain:
                self._answered(holding, Outcome.UNCERTAIN)
            else:
                lost = holding.number in answered.lost
                self._answered(holding, Outcome.LOST if lost else Outcome.DURABLE)

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        self.over = True
        self.error = error
        if self.on_over is not None:
            self.on_over(self, error)

    def _answered(self, holding: Holding, outcome: Outcome) -> None:
        holding.outcome = outcome
        self.client.world.observe.verdict_answered(self, holding)

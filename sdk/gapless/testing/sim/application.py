"""A client's process: the client's own protocol core, publishers and consumers on it, and what it keeps.

What an application keeps in its database outlives its process: the letters of its publishers (`Producer`
works them off, and asks after a crash how many were logged), and a `Row` for each subscription, in which
the token is committed together with the effects of what was consumed. What it does, and when, is decided
by a workload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gapless.core.client import ClientCore, Settings, Wanted
from gapless.core.client import effects as e
from gapless.core.events import EventColumns, encode_event
from gapless.core.messages import InUse, StartAt
from gapless.core.tokens import CheckpointToken
from gapless.testing.sim.choices import random_of
from gapless.testing.sim.network import MILLISECOND

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.subscribing import SubscriptionCore
    from gapless.core.ticks import PubendId, Tick
    from gapless.errors import GaplessError
    from gapless.testing.sim.network import ClientLink
    from gapless.testing.sim.world import World

Properties = Mapping[str, Any]

KEY_BYTES = 8
"""The key of a letter: the beginning of its body."""


@dataclass(slots=True, eq=False)
class Letter:
    """An event as its application sees it: unique by `key`, which its body begins with."""

    key: int
    topic: str
    properties: Properties
    padding: int = 0
    published_at: int = -1
    """The world's time at which it was first handed to a publisher; -1: not yet."""
    sender: str = ""
    """The name of the publisher."""

    @property
    def body(self) -> bytes:
        """What is published."""
        return self.key.to_bytes(KEY_BYTES, "big") + bytes(self.padding)


def key_of(body: bytes | memoryview) -> int:
    """The key of the letter with this body."""
    return int.from_bytes(body[:KEY_BYTES], "big")


@dataclass(slots=True, eq=False)
class Outbox:
    """What a named publisher has to publish, in order, in the application's database."""

    name: str
    topic: str
    letters: list[Letter] = field(default_factory=list)
    handed: int = 0
    """So many have been handed to a publisher, ever; they may or may not be logged."""


class Producer:
    """A publisher in a client's process, which works an outbox off."""

    def __init__(self, client: SimClient, outbox: Outbox, *, named: bool = True) -> None:
        """`named`: under the outbox's name, so that it can recover; else under one that nobody knows again."""
        self.client = client
        self.outbox = outbox
        self.named = named
        self.name = outbox.name if named else f"~{outbox.name}/{client.instance}"
        self.life = client.life
        self.open = False
        self.over = False
        self.next = 0
        """The letter of the outbox to be published next; known once the publisher is open."""
        self.on_ready: Callable[[Producer], None] | None = None
        self.on_over: Callable[[Producer, GaplessError], None] | None = None
        self._tickets: dict[int, Sequence[Letter]] = {}
        now = client.monotonic()
        instance = f"{client.instance}/{client.serial()}"
        self.number = client.core.open_publisher(self.name, instance, outbox.topic, now)
        client.own(self.number, self)
        client.touch()

    @property
    def alive(self) -> bool:
        """Whether it may publish something yet."""
        return not self.over and not self.life.over

    @property
    def waiting(self) -> int:
        """How many letters have no receipt yet."""
        return sum(map(len, self._tickets.values()))

    def publish(self, count: int) -> int:
        """Publishes the next letters of the outbox as one batch, once it is open. Returns how many."""
        letters = self.outbox.letters[self.next : self.next + count]
        if not letters or self.over or not self.open:
            return 0
        client, world = self.client, self.client.world
        self.next += len(letters)
        self.outbox.handed = max(self.outbox.handed, self.next)
        for letter in letters:
            if letter.published_at < 0:
                letter.published_at = world.now
            letter.sender = self.name
        world.observe.published(self, letters)
        events = [encode_event(letter.topic, letter.properties, None, letter.body) for letter in letters]
        columns = EventColumns.of(events, [len(letter.body) for letter in letters])
        ticket = client.core.publish(self.number, columns, client.monotonic())
        self._tickets[ticket] = letters
        client.touch()
        return len(letters)

    def close(self) -> None:
        """Forgets the publisher; what has no receipt is uncertain."""
        if not self.over:
            self.client.core.close_publisher(self.number, self.client.monotonic())
            self.client.touch()

    def on_answered(self, ready: e.PublisherReady) -> None:
        """It is open: what was logged under its name is not published again."""
        self.open = True
        self.next = ready.sequence if self.named else self.outbox.handed
        self.client.world.observe.ready(self, ready.sequence)
        if self.on_ready is not None:
            self.on_ready(self)

    def on_receipted(self, receipted: e.Receipted) -> None:
        """A batch is logged."""
        letters = self._tickets.pop(receipted.ticket)
        observe = self.client.world.observe
        for letter, tick in zip(letters, receipted.ticks, strict=True):
            observe.receipted(self, letter, receipted.pubend, tick, durable=receipted.durable)

    def on_not_published(self, refused: e.NotPublished) -> None:
        """A batch gets no receipt."""
        self.client.world.observe.not_published(self, self._tickets.pop(refused.ticket), refused.error)

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        self.over = True
        if self.on_over is not None:
            self.on_over(self, error)


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
    matches: Callable[[str, Properties], bool]
    """What `topics` and `selector` mean, written down apart from both."""
    start: StartAt = StartAt.LATEST
    start_token: CheckpointToken | None = None
    """With StartAt.TOKEN: from where it is created."""
    silence: bool = False
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

    def wanted(self, *, in_use: InUse = InUse.ERROR, token: CheckpointToken | None = None, **window: Any) -> Wanted:
        """What to ask for: to create it, or to resume with the token (or with another one)."""
        token = token or (self.token if self.keeps_token else None) or (None if self.created else self.start_token)
        if token is None:
            start = StartAt.LATEST if self.created else self.start
            return Wanted(self.topics, self.name, self.selector, start, in_use=in_use, silence=self.silence, **window)
        return Wanted(
            self.topics,
            self.name,
            self.selector,
            StartAt.TOKEN,
            positions=dict(token.ticks),
            token_sid=token.sid,
            token_generation=token.generation,
            token_seal=token.seal,
            in_use=in_use,
            silence=self.silence,
            **window,
        )


class Consumer:
    """A subscription in a client's process."""

    def __init__(
        self,
        client: SimClient,
        row: Row,
        wanted: Wanted,
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
        self.number = client.core.subscribe(wanted, client.monotonic())
        core = client.core.subscription(self.number)
        assert core is not None
        self.core: SubscriptionCore = core
        client.own(self.number, self)
        client.touch()

    @property
    def lane(self) -> str:
        """What it is called in a trace."""
        return f"{self.client.name}:{self.row.name or self.number}"

    def token(self) -> CheckpointToken:
        """The position behind what was handed out."""
        core = self.core
        return CheckpointToken(self.client.core.network, core.reached(), core.sid, core.generation, core.seal)

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
        client.touch()

    def leave(self) -> None:
        """Ends the consumption; the subscription lives on if it is durable."""
        if not self.over:
            self.over = True
            self.client.disown(self.number)
            self.client.core.detach(self.number, self.client.monotonic())
            self.client.touch()

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
        self.client.world.observe.attached(self, attached, self.core.reached())
        if self.row.token is None:
            self.row.token = self.token()
        elif self.acknowledges == "at once":
            self.acknowledge(self.row.token.ticks)
        if self.on_attached is not None:
            self.on_attached(self)

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
        self.client.world.observe.told(self, item)
        if self.acknowledges == "early":
            self.acknowledge(self.token().ticks)
        self._since_commit += 1
        if self._since_commit >= self.commit_every:
            self.commit()
        return not self.over


class SimClient:
    """A client's process, and its restarts."""

    def __init__(self, world: World, name: str, addresses: Sequence[str]) -> None:
        self.world = world
        self.name = name
        self.addresses = addresses
        self.boots = 0
        self.life = world.new_life()
        self.life.over = True
        self.paused_until = 0
        self.consumers: dict[int, Consumer] = {}
        """Those that are not over, by number."""
        self.on_start: Callable[[SimClient], None] | None = None
        self._owners: dict[int, Any] = {}
        self._links: dict[int, ClientLink] = {}
        self._serial = 0
        self._timer = world.new_life()
        self._timer_at = -1
        self._scheduled = False
        self._missed: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What happened while the process stood still."""
        self.core: ClientCore

    # Its life.

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return not self.life.over

    @property
    def instance(self) -> str:
        """Unique to this life."""
        return f"{self.name}/{self.boots}"

    def start(self) -> None:
        """Starts the process and connects."""
        if self.running:
            return
        self.boots += 1
        self.life = self.world.new_life()
        self.consumers = {}
        self._owners = {}
        self._links = {}
        self._timer_at = -1
        self._scheduled = False
        self.paused_until = 0
        self._missed = []
        jitter = random_of(self.world.choices.seed, f"jitter/{self.instance}")
        self.core = ClientCore(
            self.addresses, client_id=self.name, instance=self.instance, random=jitter, settings=Settings()
        )
        self.world.note(self.name, "start", f"process {self.boots}")
        self.core.start(self.monotonic())
        self.touch()
        if self.on_start is not None:
            self.on_start(self)

    def crash(self) -> None:
        """The process is gone, with everything that is not in the database."""
        if not self.running:
            return
        self.world.note(self.name, "crash", "the application")
        self.life.over = True
        self.consumers = {}
        links, self._links = self._links, {}
        for link in links.values():
            link.reset("the client is gone")

    def close(self) -> None:
        """The process ends in order."""
        if not self.running:
            return
        self.world.note(self.name, "close", "in order")
        self.core.close(self.monotonic())
        self.pump()
        self.life.over = True
        self.consumers = {}

    def pause(self, duration: int) -> None:
        """The process stands still for a while."""
        self.paused_until = max(self.paused_until, self.world.now + duration)
        self.world.note(self.name, "pause", f"for {duration // MILLISECOND} ms")

    def wake(self) -> None:
        """The process goes on now."""
        self.paused_until = 0
        if self.running and self._missed:
            self._resume()

    # What producers and consumers need.

    def monotonic(self) -> int:
        """The client's clock."""
        return self.world.now

    def serial(self) -> int:
        """A number that this client never used before."""
        self._serial += 1
        return self._serial

    def own(self, number: int, owner: Any) -> None:
        """What becomes of a number is told to its owner."""
        self._owners[number] = owner
        if isinstance(owner, Consumer):
            self.consumers[number] = owner

    def disown(self, number: int) -> None:
        """Nobody wants to hear of it any more."""
        self._owners.pop(number, None)
        self.consumers.pop(number, None)

    def ask(self, number: int, answered: Callable[[Any], None], failed: Callable[[GaplessError], None]) -> None:
        """A question's answer goes there."""
        self._owners[number] = Question(answered, failed)
        self.touch()

    def touch(self) -> None:
        """The core was given a command: do what it says at the end of this turn."""
        if not self._scheduled:
            self._scheduled = True
            self.world.at(max(self.world.now, self.paused_until), self.name, "pump", self.pump, life=self.life)

    def pump(self) -> None:
        """Does what the core says, and sets the timer."""
        self._scheduled = False
        if not self.running:
            return
        if self.paused_until > self.world.now:
            self.touch()
            return
        for effect in self.core.take_effects():
            self._do(effect)
        self._arm()

    # The network.

    def on_link_up(self, number: int, link: ClientLink) -> None:
        """A link that was dialled is there."""
        if not self.running or link.client_life is not self.life:
            return
        self._links[number] = link
        self._later(self.core.on_link_up, number)

    def on_link_down(self, number: int, reason: str) -> None:
        """A link is gone, or could not be made."""
        if self.running:
            self._links.pop(number, None)
            self._later(self.core.on_link_down, number, reason)

    def on_frames(self, number: int, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
        if self.running and number in self._links:
            self._later(self.core.on_frames, number, payloads)

    def _later(self, call: Callable[..., None], *arguments: Any) -> None:
        """At once; while the process stands still, afterwards, in the same order."""
        if self._missed or self.paused_until > self.world.now:
            if not self._missed:
                self.world.at(self.paused_until, self.name, "resumed", self._resume, life=self.life)
            self._missed.append((call, arguments))
            return
        call(*arguments, self.monotonic())
        self.pump()

    def _resume(self) -> None:
        if self.paused_until > self.world.now:
            self.world.at(self.paused_until, self.name, "resumed", self._resume, life=self.life)
            return
        missed, self._missed = self._missed, []
        for call, arguments in missed:
            call(*arguments, self.monotonic())
        self.pump()

    def _arm(self) -> None:
        due = self.core.deadline()
        if due is None or self.world.now < self._timer_at <= due:
            return
        self._timer.over = True
        self._timer = self.world.new_life()
        self._timer_at = max(due, self.world.now + 1)
        self.world.at(self._timer_at, self.name, "timer", self._on_timer, self.life, life=self._timer)

    def _on_timer(self, life: Any) -> None:
        if life is not self.life or life.over:
            return
        self._timer_at = -1
        self._later(self.core.on_deadline)

    # What the core wants.

    def _do(self, effect: e.Effect) -> None:
        kind = type(effect)
        if kind is e.SendFrames:
            link = self._links.get(effect.link)  # type: ignore[union-attr]
            if link is not None and not link.closed:
                link.upward.send(effect.payloads)  # type: ignore[union-attr]
        elif kind is e.Receipted:
            self._tell(effect.publisher, "on_receipted", effect)  # type: ignore[union-attr]
        elif kind is e.Arrived:
            self._tell(effect.subscription, "on_arrived")  # type: ignore[union-attr]
        elif kind is e.Answered:
            self._tell(effect.request, "on_answered", effect.result)  # type: ignore[union-attr]
        elif kind is e.Failed:
            owner = self._owners.get(effect.request)  # type: ignore[union-attr]
            self.disown(effect.request)  # type: ignore[union-attr]
            if owner is not None:
                owner.on_failed(effect.error)  # type: ignore[union-attr]
        elif kind is e.NotPublished:
            self._tell(effect.publisher, "on_not_published", effect)  # type: ignore[union-attr]
        else:
            self._do_to_link(effect)

    def _do_to_link(self, effect: e.Effect) -> None:
        if isinstance(effect, e.Dial):
            self.world.network.dial(self, effect.link, self.world.brokers[effect.address])
        elif isinstance(effect, e.Hangup):
            link = self._links.pop(effect.link, None)
            if link is not None:
                link.hangup()
        elif isinstance(effect, e.RaiseLimit):
            link = self._links.get(effect.link)
            if link is not None:
                link.downward.raise_limit(effect.limit)
        elif isinstance(effect, (e.Connected, e.Disconnected)):
            self.world.note(self.name, type(effect).__name__.lower(), effect.address)
        elif isinstance(effect, e.Closed) and effect.error is not None:
            self.world.note(self.name, "closed", str(effect.error))

    def _tell(self, number: int, method: str, *arguments: Any) -> None:
        owner = self._owners.get(number)
        if owner is not None:
            getattr(owner, method)(*arguments)


class Question:
    """Hears the answer to one question."""

    def __init__(self, answered: Callable[[Any], None], failed: Callable[[GaplessError], None]) -> None:
        self.on_answered = answered
        self.on_failed = failed

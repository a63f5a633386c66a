"""A client's process: the client's own protocol core, and its restarts.

What an application keeps in its database outlives its process: the publications of its publishers (`Producer`
works them off), and a `Row` for each subscription (a `Consumer` consumes it). What it does, and when, is
decided by a workload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gapless.core.client import OPEN_LINK, ClientCore, ClientSettings
from gapless.core.client.link import effects as e
from gapless.core.client.link.attempts import Attempts
from gapless_sim.world.choices import random_of
from gapless_sim.world.consumer import Consumer
from gapless_sim.world.options import MILLISECOND

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.links import ClientLink
    from gapless_sim.world.world import World


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
        self.attempts: Attempts
        """The count of this process."""
        self.goes_on = False
        """Whether the next start is of the same process: what is over is one of its connections alone."""

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
        if not self.goes_on:
            self.attempts = Attempts(self.instance)
        self.goes_on = False
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
            self.addresses,
            client_id=self.name,
            instance=self.instance,
            attempts=self.attempts,
            random=jitter,
            has_credentials=False,
            settings=ClientSettings(link_bytes=self.world.options.link_bytes),
        )
        self.world.note(self.name, "start", f"process {self.boots}")
        self.core.start(self.monotonic())
        self.schedule_pump()
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
        """The owner of a number is called with what becomes of it."""
        self._owners[number] = owner
        if isinstance(owner, Consumer):
            self.consumers[number] = owner

    def disown(self, number: int) -> None:
        """Nobody waits for it any more."""
        self._owners.pop(number, None)
        self.consumers.pop(number, None)

    def ask(self, number: int, answered: Callable[[Any], None], failed: Callable[[GaplessError], None]) -> None:
        """A question's answer goes there."""
        self._owners[number] = Question(answered, failed)
        self.schedule_pump()

    def schedule_pump(self) -> None:
        """The core was given a command: carry out its effects at the end of this turn."""
        if not self._scheduled:
            self._scheduled = True
            self.world.at(max(self.world.now, self.paused_until), self.name, "pump", self.pump, life=self.life)

    def pump(self) -> None:
        """Carries out the core's effects, and sets the timer."""
        self._scheduled = False
        if not self.running:
            return
        if self.paused_until > self.world.now:
            self.schedule_pump()
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
        self._later(self.core.on_link_up, number, OPEN_LINK)

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
        elif kind is e.SettlementAnswered:
            self._tell(effect.subscription, "on_settled", effect)  # type: ignore[union-attr]
        else:
            self._do_to_link(effect)

    def _do_to_link(self, effect: e.Effect) -> None:
        if isinstance(effect, e.OpenLink):
            self.world.network.dial(self, effect.link, self.world.brokers[effect.address])
        elif isinstance(effect, e.CloseLink):
            link = self._links.pop(effect.link, None)
            if link is not None:
                link.hangup()
        elif isinstance(effect, e.AskRoom):
            self.world.at(self.world.now, self.name, "room?", self._look_for_room, effect, life=self.life)
        elif isinstance(effect, e.RaiseLimit):
            link = self._links.get(effect.link)
            if link is not None:
                link.downward.raise_limit(effect.limit)
        elif isinstance(effect, e.Connected):
            self.world.note(self.name, "connected", effect.address)
        elif isinstance(effect, e.Disconnected):
            self.world.note(self.name, "disconnected", effect.address)
            self.world.observe.disconnected(self, effect.reason)
        elif isinstance(effect, e.Closed) and effect.error is not None:
            self.world.note(self.name, "closed", str(effect.error))

    def _look_for_room(self, ask: e.AskRoom) -> None:
        """Reports to the core when its link has room."""
        link = self._links.get(ask.link)
        if link is None:
            return
        if link.upward.pending <= ask.upto:
            self._later(self.core.on_room, ask.link)
        else:
            again = self.world.now + 5 * MILLISECOND
            self.world.at(again, self.name, "room?", self._look_for_room, ask, life=self.life)

    def _tell(self, number: int, method: str, *arguments: Any) -> None:
        owner = self._owners.get(number)
        if owner is not None:
            getattr(owner, method)(*arguments)


class Question:
    """Receives the answer to one question."""

    def __init__(self, answered: Callable[[Any], None], failed: Callable[[GaplessError], None]) -> None:
        self.on_answered = answered
        self.on_failed = failed

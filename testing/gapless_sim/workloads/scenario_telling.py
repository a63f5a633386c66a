"""How scenarios are told: a script is a generator that says what it waits for, and is gone when its process is.

A script yields either a time in nanoseconds or a question, and goes on when the time has passed or the
answer is yes. It runs in a client's process: when that crashes, nothing of the script is left, and the
scenario begins its scripts anew when the process starts again, from what it keeps in its database (the
attributes of the scenario). Without a client it is told by somebody who sees it all and never dies.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless_sim.options import MILLISECOND

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.application import SimClient
    from gapless_sim.consumer import Consumer
    from gapless_sim.producer import Producer
    from gapless_sim.world import Life, World

Wait: TypeAlias = "int | Callable[[], bool]"
Script: TypeAlias = "Generator[Wait, None, None]"

LOOK = 20 * MILLISECOND
"""How often a script looks whether what it waits for has come."""


class Telling:
    """One script that is being told."""

    __slots__ = ("client", "lane", "life", "script", "wait")

    def __init__(self, script: Script, lane: str, client: SimClient | None, life: Life) -> None:
        self.script = script
        self.lane = lane
        self.client = client
        self.life = life
        self.wait: Wait = 0


class Teller:
    """Goes on with every script when its time has come, until the scenarios are over."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._over = False

    def tell(self, script: Script, lane: str, client: SimClient | None = None) -> None:
        """From now on this script is told, as long as the client's process lives."""
        life = self._world.new_life() if client is None else client.life
        self._later(Telling(script, lane, client, life), 0)

    def stop(self) -> None:
        """All scripts stop where they are, for good."""
        self._over = True

    def _is_over(self, telling: Telling) -> bool:
        return self._over or telling.life.over

    def _later(self, telling: Telling, delay: int) -> None:
        at = self._world.now + delay
        if telling.client is not None:
            at = max(at, telling.client.paused_until)
        self._world.at(at, telling.lane, "scenario", self._go_on, telling, life=telling.life)

    def _go_on(self, telling: Telling) -> None:
        if self._is_over(telling):
            return
        if telling.client is not None and telling.client.paused_until > self._world.now:
            self._later(telling, 0)
            return
        while not callable(telling.wait) or telling.wait():
            try:
                telling.wait = next(telling.script)
            except StopIteration:
                return
            if self._is_over(telling):
                return
            if not callable(telling.wait):
                self._later(telling, telling.wait)
                return
        self._later(telling, LOOK)


# What scripts wait for.


def attached(consumer: Consumer) -> Wait:
    """Until it has its subscription, or will not get it."""
    return lambda: consumer.attached or consumer.over


def over(consumer: Consumer) -> Wait:
    """Until it has lost its subscription."""
    return lambda: consumer.over


def opened(producer: Producer) -> Wait:
    """Until it is open, or never will be."""
    return lambda: producer.open or producer.over


def answered(producer: Producer, room: int = 0) -> Wait:
    """Until at most so many letters have no receipt, or it is over."""
    return lambda: producer.over or producer.waiting <= room


def either(world: World, wait: Wait, limit: int) -> Wait:
    """Until it has come, or this time has passed."""
    assert callable(wait)
    come, end = wait, world.now + limit
    return lambda: come() or world.now >= end


class Answer:
    """A question to the broker, and what became of it."""

    __slots__ = ("error", "given", "result")

    def __init__(self, client: SimClient, number: int) -> None:
        """`number`: as the client's core gave it when it was asked."""
        self.given = False
        self.result: Any = None
        self.error: GaplessError | None = None
        client.ask(number, self._on_answered, self._on_failed)

    def come(self) -> bool:
        """Whether it is answered, either way."""
        return self.given

    def _on_answered(self, result: Any) -> None:
        self.given = True
        self.result = result

    def _on_failed(self, error: GaplessError) -> None:
        self.given = True
        self.error = error

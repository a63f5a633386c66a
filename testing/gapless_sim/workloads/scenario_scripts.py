"""The scripts of scenarios: a script is a generator that yields what it waits for, and ends with its process.

A script yields either a time in nanoseconds or a condition, and goes on when the time has passed or the
condition holds. It runs in a client's process: when that crashes, nothing of the script is left, and the
scenario begins its scripts anew when the process starts again, from what it keeps in its database (the
attributes of the scenario). A script without a client survives everything, and may look at everything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless_sim.world.options import MILLISECOND

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.producer import Producer
    from gapless_sim.world.world import Life, World

Wait: TypeAlias = "int | Callable[[], bool]"
Script: TypeAlias = "Generator[Wait, None, None]"

LOOK = 20 * MILLISECOND
"""How often a script looks whether what it waits for has come."""


class RunningScript:
    """A script that has begun."""

    __slots__ = ("client", "lane", "life", "script", "wait")

    def __init__(self, script: Script, lane: str, client: SimClient | None, life: Life) -> None:
        self.script = script
        self.lane = lane
        self.client = client
        self.life = life
        self.wait: Wait = 0


class ScriptRunner:
    """Runs each script, until the scenarios are over."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._over = False

    def run(self, script: Script, lane: str, client: SimClient | None = None) -> None:
        """From now on this script runs, as long as the client's process lives."""
        life = self._world.new_life() if client is None else client.life
        self._later(RunningScript(script, lane, client, life), 0)

    def stop(self) -> None:
        """All scripts stop where they are, for good."""
        self._over = True

    def _is_over(self, running: RunningScript) -> bool:
        return self._over or running.life.over

    def _later(self, running: RunningScript, delay: int) -> None:
        at = self._world.now + delay
        if running.client is not None:
            at = max(at, running.client.paused_until)
        self._world.at(at, running.lane, "scenario", self._go_on, running, life=running.life)

    def _go_on(self, running: RunningScript) -> None:
        if self._is_over(running):
            return
        if running.client is not None and running.client.paused_until > self._world.now:
            self._later(running, 0)
            return
        while not callable(running.wait) or running.wait():
            try:
                running.wait = next(running.script)
            except StopIteration:
                return
            if self._is_over(running):
                return
            if not callable(running.wait):
                self._later(running, running.wait)
                return
        self._later(running, LOOK)


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
    """Until at most so many publications have no receipt, or it is over."""
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

"""The operations of the workload `churn` on outboxes and publishers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gapless_sim.workloads.churn_relays import OutboxRelay
from gapless_sim.workloads.churn_state import ChurnState, is_able
from gapless_sim.workloads.publications import TOPICS

if TYPE_CHECKING:
    from gapless_sim.workloads.churn_application import Application
    from gapless_sim.world.application import SimClient

RELAYS_MOST = 3
"""Of one application."""


class PublishOperations:
    """Each takes an application and one of its processes, and returns whether there was something to do."""

    def __init__(self, state: ChurnState) -> None:
        self._state = state
        self._choices = state.choices

    def others(self) -> Sequence[Callable[[Application, SimClient], bool]]:
        """All but `publish`."""
        return (self.burst, self.publish_bad, self.open_twice, self.close, self.hand_over)

    def publish(self, application: Application, process: SimClient) -> bool:
        """One event, or a batch."""
        choices = self._choices
        size = 1 + choices.draw(16) if choices.chance(0.4) else 1
        self._put(self._some_relay(application, process), size)
        return True

    def burst(self, application: Application, process: SimClient) -> bool:
        """Many at once, in batches."""
        choices = self._choices
        relay = self._some_relay(application, process)
        size = choices.pick((1, 5, 20, 60))
        for _ in range(2 + choices.draw(8)):
            self._put(relay, size)
        self._state.sometimes("burst")
        return True

    def publish_bad(self, application: Application, process: SimClient) -> bool:
        """An event that is refused, between good ones."""
        relay = self._choices.pick(self._relays_of(application, process) or [None])
        if relay is None or relay.named:
            return False  # of a named one it would shift the sequences
        self._put(relay, 1)
        relay.put([self._state.publications.write_bad()])
        self._put(relay, 2)
        return True

    def open_twice(self, application: Application, process: SimClient) -> bool:
        """A second publisher of a name; the first one is forgotten, but not closed."""
        idle = [relay for relay in application.relays if relay.named and relay.done and not relay.given_up]
        if not idle:
            return False
        self._choices.pick(idle).open(process)
        self._state.sometimes("publisher opened twice")
        return True

    def close(self, application: Application, process: SimClient) -> bool:
        """A publisher is closed, answered or not; it is opened again with the next that is to be published."""
        relays = self._relays_of(application, process)
        if not relays:
            return False
        self._choices.pick(relays).close()
        self._state.sometimes("publisher closed")
        return True

    def hand_over(self, application: Application, process: SimClient) -> bool:
        """An outbox moves to another process of the application: closed there, opened here."""
        elsewhere = [
            relay
            for relay in application.relays
            if relay.named and not relay.given_up and relay.home not in (None, process) and _can_close(relay)
        ]
        if not elsewhere:
            return False
        relay = self._choices.pick(elsewhere)
        relay.close()
        relay.close_zombies()
        relay.open(process)
        self._state.sometimes("handed over")
        return True

    # How it is done.

    def _put(self, relay: OutboxRelay, size: int) -> None:
        relay.put([self._state.publications.write() for _ in range(size)])

    def _some_relay(self, application: Application, process: SimClient) -> OutboxRelay:
        """One of the process's outboxes; a new one if there is none, and sometimes."""
        relays = self._relays_of(application, process)
        if not relays or (len(application.relays) < RELAYS_MOST and self._choices.chance(0.1)):
            return self._new_relay(application, process)
        return self._choices.pick(relays)

    def _relays_of(self, application: Application, process: SimClient) -> list[OutboxRelay]:
        """Those that this process works off, and those that nobody does: these it opens."""
        relays = [relay for relay in application.relays if relay.home in (None, process) and not relay.given_up]
        for relay in relays:
            if relay.home is None:
                relay.home = process
                relay.tend()
        return relays

    def _new_relay(self, application: Application, process: SimClient) -> OutboxRelay:
        choices = self._choices
        number = len(application.relays) + 1
        relay = OutboxRelay(
            self._state, application.name, number, named=not choices.chance(0.35), topic=choices.pick(TOPICS)
        )
        application.relays.append(relay)
        relay.open(process)
        return relay


def _can_close(relay: OutboxRelay) -> bool:
    """Whether its publisher can be closed, or is gone for good."""
    sender = relay.sender
    return sender is None or not sender.alive or is_able(sender.client)

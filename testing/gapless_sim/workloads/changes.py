"""What applications of several workloads do alike when they want other events than before under a subscription's name.

In some worlds only. What is drawn for it comes from streams of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.wire.messages import OnChange, StartAt
from gapless.errors import ConnectionClosedError
from gapless.selectors.headers import APP_ID
from gapless_sim.world.consumer import Row, is_alive
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.workloads.filters import Terms
    from gapless_sim.world.choices import Stream
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.world import World

ON_ITS_WAY = 5 * SECOND
"""So long a frame of a process that has ended may take to the broker."""
WAYS = (OnChange.KEEP_POSITION, OnChange.KEEP_POSITION, OnChange.JMS)


class Requests:
    """What was asked about a subscription and not answered: it may still arrive, and be done."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._unanswered: dict[Consumer, int] = {}
        """Since when nobody waits for it; 0: somebody does."""

    def note(self, consumer: Consumer) -> None:
        """A consumer has asked."""
        self._unanswered[consumer] = 0

    def are_over(self) -> bool:
        """Whether none of them can be done any more."""
        now = self._world.now
        for consumer, over_since in list(self._unanswered.items()):
            refused = consumer.error is not None and not isinstance(consumer.error, ConnectionClosedError)
            if consumer.attached or refused or (over_since and now - over_since > ON_ITS_WAY):
                del self._unanswered[consumer]
            elif not is_alive(consumer) and not over_since:
                self._unanswered[consumer] = now
        return not self._unanswered


def changed(former: Row, number: int, terms: Terms, way: OnChange, draws: Stream) -> Row | None:
    """The same subscription for other events, as a row of its own; None if they are the same."""
    keeps = way is OnChange.KEEP_POSITION
    row = replace(
        former,
        number=number,
        topics=terms.topics,
        selector=terms.selector,
        matches=terms.matches,
        start=StartAt.LATEST,
        start_token=None,
        token=former.token if keeps and former.keeps_token and draws.chance(0.5) else None,
        tokens=[],
        no_local=False,
        created=False,
        on_change=way,
        former=former,
        owner=None,
    )
    if draws.chance(0.4):
        leave_out(row)
    same = (row.topics, row.selector, row.no_local) == (former.topics, former.selector, former.no_local)
    return None if same else row


def leave_out(row: Row) -> None:
    """A subscription is for no events of its own client."""
    row.no_local, row.matches = True, _without(row.matches, row.client_id)


def _without(matches: Callable[[Logged], bool], app_id: str) -> Callable[[Logged], bool]:
    """What matches and was not published under this name."""
    return lambda event: matches(event) and event.publication.properties.get(APP_ID) != app_id

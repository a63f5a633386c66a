"""Makes the spans of a broker, of what its roles tell (`gapless.core.traces`): append, sync, match and deliver.

They are children of the span that has sent the events, which their property `traceparent` names, or else roots.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from gapless import loggers, tracing
from gapless.core.traces import Logged, Matched

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

    from gapless.core.stream.events import Header

log = loggers.logger("gapless.observe")

SYNCS_KEPT: Final = 64
"""So many syncs are remembered, until it is told what they have made durable."""


class BrokerSpans:
    """Makes spans for one machine. Times are monotonic nanoseconds, of the clock that the machine has."""

    def __init__(self, tracer: Tracer, node: str, clock: Callable[[], int]) -> None:
        self._tracer = tracer
        self._node = node
        self._clock = clock
        self._syncs: deque[tuple[int, int, int]] = deque(maxlen=SYNCS_KEPT)
        """Of each sync: when the last write was asked for that it covers, when it began, and when it ended."""
        self._heard: list[tuple[Logged | Matched, int, int]] = []
        """What was told in this turn, when the turn began, and when it was told."""
        self._has_failed = False
        """Whether the operator was told that spans could not be made: once is enough."""

    def on_synced(self, written_ago: int, began_ago: int) -> None:
        """A sync has ended: so long ago it began, and the last write was asked for that it covers."""
        now = self._clock()
        self._syncs.append((now - written_ago, now - began_ago, now))

    def hear(self, traced: Logged | Matched, turn: int) -> None:
        """A role tells something in the turn that began then."""
        self._heard.append((traced, turn, self._clock()))

    def on_turn(self) -> None:
        """A turn is over, and what is to leave with it has left."""
        if not self._heard:
            return
        heard, self._heard = self._heard, []
        ended = self._clock()
        since_1970 = time.time_ns() - ended
        try:
            for traced, turn, told in heard:
                if isinstance(traced, Logged):
                    self._on_logged(traced, turn, since_1970)
                else:
                    self._on_matched(traced, (turn, told, ended), since_1970)
        except Exception:
            # The broker's work does not depend on it, nor on what the process has for a provider.
            level = logging.DEBUG if self._has_failed else logging.WARNING
            self._has_failed = True
            log.log(level, "spans could not be made", exc_info=True)

    def _on_logged(self, traced: Logged, turn: int, since_1970: int) -> None:
        header = traced.first.header(0)
        parent = next(iter(tracing.origins([header.properties])), None)
        context = None if parent is None else tracing.below(parent)
        sync = self._sync_of(traced.came) if traced.is_in_volume else None
        until = turn if sync is None else sync[0]
        attributes = self._attributes(traced, header)
        below = self._span("append", header, attributes, context, (traced.came, until), since_1970)
        if sync is not None:
            self._span("sync", header, attributes, context or below, sync, since_1970)

    def _sync_of(self, came: int) -> tuple[int, int] | None:
        """When the sync began, and ended, that made what was written durable that came then."""
        covering = ((written, began, ended) for written, began, ended in self._syncs if written >= came)
        found = min(covering, default=None)
        return None if found is None else (max(found[1], came), found[2])

    def _on_matched(self, traced: Matched, times: tuple[int, int, int], since_1970: int) -> None:
        turn, told, ended = times
        for context, header in _senders(traced.chosen.headers):
            attributes = self._attributes(traced, header)
            below = self._span("match", header, attributes, context, (turn, told), since_1970)
            if traced.deliveries:
                attributes = {**attributes, "gapless.deliveries": traced.deliveries}
                self._span("deliver", header, attributes, context or below, (told, ended), since_1970)

    def _attributes(self, traced: Logged | Matched, header: Header) -> dict[str, Any]:
        about = {"gapless.node": self._node, "gapless.pubend": traced.pubend}
        return {**tracing.destination(header.topic, traced.count), **about}

    def _span(
        self,
        what: str,
        header: Header,
        attributes: dict[str, Any],
        context: Context | None,
        times: tuple[int, int],
        since_1970: int,
    ) -> Context:
        """Makes a span that is over. Returns the context of what is below it."""
        from opentelemetry.context import Context

        start, end = times
        name = f"{what} {header.topic}"
        context = Context() if context is None else context
        span = self._tracer.start_span(name, context, attributes=attributes, start_time=since_1970 + start)
        span.end(since_1970 + max(start, end))
        return tracing.below(span.get_span_context())


def _senders(headers: Iterable[Header]) -> list[tuple[Context | None, Header]]:
    """Each context in which some of these events were sent, with the first of them; None: in none that is known."""
    found: dict[object, tuple[Context | None, Header]] = {}
    for header in headers:
        origin = next(iter(tracing.origins([header.properties])), None)
        if origin is None:
            found.setdefault(None, (None, header))
        else:
            found.setdefault((origin.trace_id, origin.span_id), (tracing.below(origin), header))
    return list(found.values())

"""How patient a client is."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.client.backoff import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Times of a client, in nanoseconds."""

    connect: int = 10 * SECOND
    """How long dialling and greeting may take together."""
    backoff_first: int = 100 * MILLISECOND
    backoff_most: int = 5 * SECOND
    steady: int = SECOND
    """A session that lasted so long was a good one: the next try does not wait long."""
    retry_first: int = 100 * MILLISECOND
    """The first delay before a publisher or a subscription tries again what the broker put off."""
    retry_most: int = 5 * SECOND
    acknowledge: int = 100 * MILLISECOND
    """Acknowledgements are sent no more often than this."""

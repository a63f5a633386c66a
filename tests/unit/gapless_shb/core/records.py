"""Subscriptions that are put into a registry without a client."""

from __future__ import annotations

from gapless.core.ports import Operation
from gapless.core.stream.ticks import PubendId, Tick
from gapless_shb.core.state.registry import Registry, SubscriptionRecord
from gapless_shb.core.state.subscription import Phase


def create(
    registry: Registry,
    client_id: str,
    name: str,
    topics: tuple[str, ...] = ("t",),
    selector: str = "",
    late_start: Tick = 0,
    start: dict[PubendId, Tick] | None = None,
    *,
    begun: bool = True,
) -> tuple[SubscriptionRecord, list[Operation]]:
    """A new subscription, and what is written of it."""
    subscription = SubscriptionRecord(0, client_id, name, 1, topics, selector, 0, late_start, start or {}, begun)
    return subscription, registry.create(subscription, Phase.FREE)

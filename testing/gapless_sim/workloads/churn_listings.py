"""Whether what a broker lists can be true, for an application that knows its own part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.selectors.lexer import canonical
from gapless_sim.workloads.churn_state import wrong

if TYPE_CHECKING:
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.messages import ListedPubend, ListedSubscription
    from gapless_sim.workloads.churn_application import Application
    from gapless_sim.world.application import SimClient


def check_subscriptions(client: SimClient, rows: Sequence[ListedSubscription]) -> None:
    """Each is listed once at its node, has a name, and no number is negative."""
    names = {(row.node, row.client_id, row.name) for row in rows}
    if len(names) != len(rows) or len({(row.node, row.sid) for row in rows}) != len(rows):
        raise wrong(client.name, f"a subscription is listed twice: {[(row.client_id, row.name) for row in rows]}")
    for row in rows:
        pubends = [position.pubend for position in row.acknowledged]
        if not row.name or row.lag_events < 0 or row.lag_seconds < 0 or len(set(pubends)) != len(pubends):
            raise wrong(client.name, f"a subscription is listed that makes no sense: {row}")


def check_connected(
    client: SimClient, rows: Sequence[ListedSubscription], attached: frozenset[tuple[int, int]]
) -> None:
    """What this process consumed all the time since it asked is connected; `attached`: sessions and ids."""
    unconnected = {row.sid for row in rows if not row.connected and row.node in client.addresses}
    for _, sid in sorted(attached):
        if sid in unconnected:
            raise wrong(client.name, f"subscription {sid} is consumed, and listed as not connected")


def check_names(client: SimClient, rows: Sequence[ListedSubscription], asked: int, application: Application) -> None:
    """What an application has had, or not had, ever since this was `asked` is listed, or is not."""
    found = {(row.client_id, row.name): row for row in rows if row.node in client.addresses}
    for name, changed_at in application.changed_at.items():
        if changed_at >= asked:
            continue
        subscription, listed = application.named(name), found.get((application.name, name))
        if subscription is None and listed is not None:
            raise wrong(client.name, f"{application.name}:{name} is removed, and listed")
        if subscription is None or not subscription.living or not subscription.row.created or subscription.lapsed:
            continue
        row = subscription.row
        if listed is None:
            raise wrong(client.name, f"{subscription.lane} is not listed")
        if application.state.has_ever_lapsed(row.client_id, row.name):
            continue  # one that was to be refused may have made it anew, as it wants it
        if (tuple(listed.topics), canonical(listed.selector)) != (row.topics, canonical(row.selector)):
            raise wrong(client.name, f"{subscription.lane} is listed with other topics or another selector: {listed}")


def check_pubends(
    client: SimClient, rows: Sequence[ListedPubend], known: dict[PubendId, tuple[Tick, Tick]], *, lossy: bool
) -> None:
    """Each once, in bounds, and nothing has gone back since what was known of it when it was asked."""
    if len({row.pubend for row in rows}) != len(rows):
        raise wrong(client.name, f"a pubend is listed twice: {[row.pubend for row in rows]}")
    for row in rows:
        if min(row.lost, row.newest, row.released, row.log_bytes, row.publishers) < 0:
            raise wrong(client.name, f"a pubend is listed that makes no sense: {row}")
        if not row.stable:
            continue  # it is being recovered: nothing is decided yet
        if max(row.created, row.newest, row.lost, row.released) > row.stable:
            raise wrong(client.name, f"a pubend is listed that makes no sense: {row}")
        lost, stable = known.get(row.pubend, (0, 0))
        if not lossy and (row.lost < lost or row.stable < stable):
            raise wrong(client.name, f"{row.pubend} went back: from lost {lost}, stable {stable} to {row}")

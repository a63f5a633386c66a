"""Restores an SHB after a restart: its pubends, the PFS, every position (protocol: shb-recovery; T49)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import PubendMeta
from gapless.core.ports import RoleContext
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.errors import VolumeCorruptError
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.pfs.index import CHAINS, Pfs, decode_chains, stream_name
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.rows import PositionRow, ShbPubendRow, recover_positions, recover_pubends


def recover(hosting: Hosting, context: RoleContext) -> None:
    """Restores all pubends, with the positions of all subscriptions in the registry."""
    sids = {subscription.sid for subscription in hosting.registry}
    chains = dict(context.reader.scan(CHAINS))
    last_ticks: dict[PubendId, dict[int, Tick]] = {}
    for pubend, row in recover_pubends(context.reader):
        stream = _recovered_stream(hosting, context, pubend, row)
        hosting.add_stream(stream)
        # Before positions are added: whether a position is idle depends on the last tick that the PFS has for it.
        try:
            last_ticks[pubend] = _recovered_pfs(context, stream.pfs, chains.get(pubend.encode()), sids)
        except VolumeCorruptError as error:
            last_ticks[pubend] = _give_up_pfs(hosting, stream.pfs, error)
    for subscription, rows in _with_rows(hosting.registry, recover_positions(context.reader)):
        for stream in hosting.streams.values():
            position = _recovered(subscription, stream, rows.get(stream.pubend))
            position.last_tick = last_ticks[stream.pubend].get(subscription.sid, 0)
            stream.add(subscription.sid, position, subscription.version)
            if position.held:
                wall = _wall_sought(subscription, stream, position)
                stream.holds.put(subscription.sid, position.acked, context.now, wall)


def _recovered_stream(hosting: Hosting, context: RoleContext, pubend: PubendId, row: ShbPubendRow) -> Constream:
    chopped = context.reader.facts(stream_name(pubend)).first
    pfs = Pfs(pubend, row.grain, row.latest_delivered, chopped, imprecise=hosting.catch_up.imprecise)
    meta = PubendMeta(
        pubend,
        row.broker,
        row.topics,
        created=row.created,
        read_only=row.read_only,
        voids=row.voids,
        forks=row.forks,
        residue=row.residue,
        grain=row.grain,
        volume=row.volume,
    )
    assert row.released <= row.latest_delivered, "nothing is released that is not delivered"
    stream = Constream(meta, row.latest_delivered, pfs, hosting)
    stream.released = stream.reported = row.released
    if row.enrolled_at is not None:
        stream.enrol(row.enrolled_at)
    stream.holds.version = row.hold_version
    stream.gone_upto = row.gone_upto
    stream.followed_by = row.followed_by
    stream.heard_upto = row.heard_upto or row.latest_delivered
    return stream


def _recovered_pfs(context: RoleContext, pfs: Pfs, row: bytes | None, sids: Container[int]) -> dict[int, Tick]:
    """Restores a PFS. Returns the last tick of each subscription: from the chains' row and the blocks after it."""
    last_ticks: dict[int, Tick] = {}
    after = pfs.chopped
    if row is not None:
        chains = decode_chains(row)
        last_ticks.update(pfs.recover_chains(chains, sids))
        after = max(after, chains.upto)
    for index, data in context.reader.records(pfs.stream, after):
        last_ticks.update(pfs.recover(index, data, sids))
    return last_ticks


def _give_up_pfs(hosting: Hosting, pfs: Pfs, error: VolumeCorruptError) -> dict[int, Tick]:
    """Gives up a damaged PFS: what it covered will be fetched again, and holds the log back until then.

    Returns the last tick that each subscription may have in it.
    """
    pfs.lose()
    text = f"the PFS of {pfs.pubend} is damaged, what it covered is fetched instead: {error}"
    hosting.outbox.emit(Alarm(AlarmCode.PFS_UNREADABLE, text, pfs.pubend))
    return {subscription.sid: pfs.closed_upto for subscription in hosting.registry}


def _with_rows(
    subscriptions: Iterable[SubscriptionRecord], found: Iterator[tuple[int, dict[PubendId, PositionRow]]]
) -> Iterator[tuple[SubscriptionRecord, dict[PubendId, PositionRow]]]:
    """Yields each subscription with its position rows. Both sources are in the order of ids."""
    at, rows = next(found, (FOREVER, {}))
    for subscription in subscriptions:
        while at < subscription.sid:
            at, rows = next(found, (FOREVER, {}))
        yield subscription, rows if at == subscription.sid else {}


def _recovered(subscription: SubscriptionRecord, stream: Constream, row: PositionRow | None) -> SubscriptionPosition:
    """Restores a position. What it had released is only known from what was reported (T49)."""
    released, seeks = stream.reported, stream.seeks(subscription)
    if row is None and seeks:
        return SubscriptionPosition(0, held=True, sought=True)
    if row is None:
        start = stream.start_of(subscription)
        return SubscriptionPosition(start, acked=start, released=max(start, released))
    assert row.acked_event <= row.acked, "what was acknowledged last is not above the position"
    since = FOREVER if stream.meta.timed and not row.since else row.since
    recovered = row.acked if row.held else max(row.acked, released)
    return SubscriptionPosition(
        row.start, since, row.acked, row.acked_event, released=recovered, held=row.held, sought=seeks
    )


def _wall_sought(subscription: SubscriptionRecord, stream: Constream, position: SubscriptionPosition) -> int | None:
    """Returns which time the pubend is to be asked for once more, if it had not answered yet; None: for none."""
    if position.sought:
        return subscription.late_wall
    began_at_a_time = subscription.start_wall and not subscription.begun and not stream.meta.timed
    return subscription.start_wall if began_at_a_time and not position.acked else None

"""One pubend: an ordered stream of events, and all that this broker promises about it (protocol: log, release)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode, Note, Subject
from gapless.core.gauges import Gauge
from gapless.core.network.facts import Opened, PubendMeta
from gapless.core.network.reach import reach_of
from gapless.core.ports import Operation, Set
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.ticks import MILLISECOND, STEP, PubendId, ShbId, Tick
from gapless.core.wire import messages
from gapless_phb.core import gauges, rows
from gapless_phb.core.retention.members import Retention
from gapless_phb.core.rows import SavedPubend
from gapless_phb.core.settings import PubendSettings
from gapless_phb.core.source import PubendContext, Source, Timers


class Pubend:
    """Joins the two halves of a pubend: its source of events (`source`), and who still needs them (`retention`)."""

    def __init__(
        self,
        context: PubendContext,
        saved: SavedPubend,
        source: Source,
        options: PubendSettings,
        timers: Timers,
        group: str | None,
        *,
        is_new: bool,
        read_only: bool,
    ) -> None:
        """Restores a pubend from its rows.

        `group`: the group in total order that it is in. `is_new`: the rows are not written yet. `read_only`: no longer
        configured.
        """
        self.pubend: PubendId = saved.row.pubend
        self.number = saved.number
        self.row = saved.row
        self.read_only = read_only
        self.group = group
        self._publishers = options.publishers
        self.source = source
        self.log = source.log
        self.retention = Retention(context, source, saved, options, timers)
        self.release = self.retention.release
        self.timers = timers
        self._is_new = is_new
        self._context = context
        self._outbox = context.outbox

    @property
    def is_made(self) -> bool:
        """Whether it is there: a new one is when its rows are durable, and the network hears of it."""
        return not self._is_new or self.log.ready

    @property
    def meta(self) -> PubendMeta:
        """The description of the pubend that is sent to the network."""
        row = self.row
        return PubendMeta(
            self.pubend,
            self._context.broker,
            row.topics,
            self.group,
            row.created,
            self.read_only,
            row.voids,
            self.log.stable,
            # A start by time stands at the last remainder, and must never be taken for the position of an event. So
            # the pubend of that number announces no remainder.
            self.number if self.number < STEP - 1 and self.log.grain == MILLISECOND else None,
            self.log.grain,
            self._context.volume if self.log.grain == MILLISECOND else "",
            tuple((lo, hi) for lo, hi, _ in row.forks),
            self.log.stable,
            self._publishers,
            self._context.settings.places,
        )

    def begin(self, now: int, wall: int) -> None:
        """Makes the new rows durable, then opens the pubend to the network.

        The time between the last tick that the former run could have used and the present becomes a void: no event can
        ever have a tick there. If a token stands at a tick in a void, it was made from data that this log has lost
        (U03).
        """
        void = self.source.void(now, wall)
        if void is not None:
            voids = (*self.row.voids, void)[-self._context.settings.void_limit :]
            self.row = replace(self.row, voids=voids)
        operations: list[Operation] = [Set(self._context.tables.pubends, rows.key(self.number), rows.encode(self.row))]
        # In the same write: otherwise a crash could leave a pubend that does not count the SHBs that need it.
        if self._is_new:
            operations += self.retention.members
        self._outbox.write(operations)
        self.source.begin(self._ready, now, wall)

    def _ready(self, now: int, wall: int) -> None:
        self._open()
        if self._is_new:
            self._note(f"was created, for {', '.join(self.row.topics)}")
        elif self.read_only:
            self._note("takes no new events any more: its log is gone, or the configuration does not name it")
        self.source.start(now, wall)
        self.retention.start(now)

    def learn_voids(self, voids: tuple[tuple[Tick, Tick], ...]) -> None:
        """The log describes other voids than before: informs the network, before anything is sent above them."""
        self.row = replace(self.row, voids=voids)
        if self.log.ready:
            self._open()

    def ran_twice(self, other: int, now: int, wall: int) -> None:
        """Another process of this node may have logged events here: informs the network, once for each such process."""
        if all(known != other for _, _, known in self.row.forks):
            self._fork(other, 0, now, wall)

    def ask(self, ranges: Ranges, reply_to: Hashable, now: int, wall: int) -> None:
        """An SHB needs these ranges. It knows what is before them, as far as it asks for what comes.

        Nobody can know more than this log has decided, unless another process has told it.
        """
        told = max((lo for lo, _ in ranges), default=0)
        decided = self.log.stable
        # Not `reach` of this pubend: it would rise with what was believed, a day each time.
        believed = told <= reach_of(replace(self.meta, reach=0), wall)
        if self.log.ready and told > decided and believed and self._fork(0, told, now, wall):
            text = (
                f"an SHB was told all of {self.pubend} up to tick {told}, and this log is decided up to {decided}:"
                " another process of this node has told it, or an old copy of the volume was put back"
            )
            self._outbox.emit(Alarm(AlarmCode.BROKERS_CONTRADICT, text, self.pubend))
        self.retention.ask(ranges, reply_to, now, wall)

    def _fork(self, other: int, upto: Tick, now: int, wall: int) -> bool:
        forks = [(lo, hi, other) for lo, hi in self.source.fork(upto, now, wall)]
        if not forks:
            return False
        known = [fork for fork in self.row.forks if (fork[0], other) != (forks[-1][0], 0)]
        if len(known) > self._context.settings.void_limit:
            known = [fork for fork in known if fork[1] > self.log.lost]  # the others are gone anyway
        self.row = replace(self.row, forks=(*known, *forks))
        self._outbox.write([Set(self._context.tables.pubends, rows.key(self.number), rows.encode(self.row))])
        if self.log.ready:
            self._open()
        return True

    def seal(self) -> None:
        """Nothing will ever be added: informs the network."""
        self.read_only = True
        self._open()

    def _open(self) -> None:
        self._outbox.emit(Opened(self.meta, dict(self.release.members)))

    def _note(self, what: str) -> None:
        self._outbox.emit(Note(Subject.PUBEND, f"pubend {self.pubend} {what}", pubend=self.pubend))

    def retire(self, shb: ShbId) -> None:
        """Gives an SHB up for good: the log no longer waits for it (T10). Informs the network once that is durable."""
        self.retention.retire(shb, lambda _now, _wall: self._open())

    # ---------------------------------------------------------------------------------------------- looking

    def listing(self) -> messages.ListedPubend:
        """Returns the row of this pubend in the answer to ListPubends."""
        return messages.ListedPubend(
            self.pubend,
            self.row.topics,
            self.row.created,
            self.log.lost,
            self.log.newest,
            self.log.stable,
            self.release.released,
            self.log.index.size,
            self.source.publisher_count,
            tuple(self.release.members),
            self.release.delivered,
            self.log.index.above(self.release.needless),
            self.log.index.above(self.release.delivered),
            tuple((shb, at, self.log.index.above(at)) for shb, at in self.release.lowest_holds().items()),
            self.release.policy,
            tuple(self.log.damage.listing(self.log.lost)),
            self.log.damage.refusal,
            timed=self.log.grain == MILLISECOND,
        )

    def gauges(self) -> Iterator[Gauge]:
        """Yields its positions, its sizes, and which SHBs its log waits for."""
        yield gauges.READ_ONLY.gauge(self.read_only, self.pubend)
        yield from self.source.gauges()
        yield from self.retention.gauges()

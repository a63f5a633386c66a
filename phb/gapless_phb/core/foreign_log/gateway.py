"""The pubends of a broker whose logs are not its own: it opens those logs, and brings each pubend what concerns it.

Durable are a pubend's row, its members, and its holds. A broker that has lost them takes a pubend on anew: its log
still has every event and every publisher's mark, SHBs enrol again, and tokens are as good as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.outbox import Outbox
from gapless.core.ports import (
    Grown,
    Handler,
    Located,
    LogCapabilities,
    LogEnded,
    LogFormat,
    LogRead,
    LogsFound,
    LogTrouble,
    NumberedLog,
    OpenLogs,
    Refused,
    Uncertain,
)
from gapless.core.stream.ticks import STEP, PubendId, ShbId, Tick, name_of
from gapless.errors import ConfigurationError
from gapless_phb.core.foreign_log.source import ForeignLogSource
from gapless_phb.core.pubend import Pubend
from gapless_phb.core.publishers.validation import carries
from gapless_phb.core.rows import PubendRow, SavedPubend
from gapless_phb.core.settings import PubendSettings
from gapless_phb.core.source import PubendContext, Timers

NUMBERS = 1 << 16
"""Numbers of pubends take two bytes; those below STEP are for pubends whose ticks are the broker's own."""
_GONE = LogCapabilities("log", alone=False, atomic=False, timed=False, trims=False, record_max=None)


class Gateway:
    """Opens logs, makes a pubend of each, and passes on what their plugins say."""

    def __init__(
        self,
        context: PubendContext,
        logs: Sequence[OpenLogs],
        saved: Iterable[SavedPubend],
        members: Iterable[ShbId],
        add: Callable[[Pubend], None],
    ) -> None:
        """`saved`: the rows of its pubends. `members`: the SHBs that a new pubend counts.

        `add` is called with each pubend before it is opened.
        """
        self._context = context
        self._outbox: Outbox = context.outbox
        self._logs = logs
        self._saved = {each.row.pubend: each for each in saved}
        """Those whose logs have not been found yet."""
        self._number = max([STEP - 1, *(each.number for each in self._saved.values())]) + 1
        self._members = tuple(members)
        self._add = add
        self._pubends: dict[PubendId, tuple[Pubend, ForeignLogSource]] = {}
        self._warned: dict[str, str] = {}
        """How each log is less safe than a durable receipt promises, as it was said last."""
        self._troubles: dict[str, str] = {}
        """What is wrong with logs, and with topics of which none is found."""
        self._families = {each.row.family for each in self._saved.values()}
        self._names = {name_of(each.row.pubend) for each in self._saved.values()}

    def handlers(self) -> Mapping[type, Handler]:
        """Returns the handler of each message of a log plugin; none if no logs are configured."""
        if not self._logs:
            return {}
        answers: dict[type, Handler] = dict.fromkeys((LogRead, Located, Refused, Uncertain), self._outbox.on_answer)
        return answers | {
            LogsFound: self._on_found,
            Grown: self._on_grown,
            LogTrouble: self._on_trouble,
            LogEnded: self._on_ended,
        }

    def start(self, now: int, wall: int) -> None:
        """Opens the logs. Pubends whose logs had ended are opened at once: their subscribers are told of their gap."""
        for saved in [each for each in self._saved.values() if each.lost]:
            pubend, source = self._make_gone(saved, now)
            source.log.end()
            pubend.begin(now, wall)
        for section in self._logs:
            self._outbox.emit(replace(section, known=self._known(section)))

    def _known(self, section: OpenLogs) -> dict[str, str]:
        """Returns the logs that this section has found before. Where two have the same topic, nobody can tell which."""
        alone = [topic for topic in section.topics if sum(topic in each.topics for each in self._logs) == 1]
        rows = [each.row for each in self._saved.values()]
        return {row.pubend: row.family for row in rows if any(topic in alone for topic in row.topics)}

    def _make_gone(self, saved: SavedPubend, now: int) -> tuple[Pubend, ForeignLogSource]:
        """Makes a pubend whose log is gone and was not found in this life."""
        row = saved.row
        del self._saved[row.pubend]
        found = NumberedLog(row.pubend, row.family, "", 0, 0, row.voids, _GONE, _NoFormat(), b"", "", ())
        pubend, source = self._make(saved, found, is_new=False, now=now)
        pubend.read_only = True
        return pubend, source

    def assigned(self, publisher: str, topic: str) -> Pubend | None:
        """Returns the pubend for a publisher that is on none yet, by a hash of its name; None if there is none yet.

        Nor before all of them are read: another gateway may have had the publisher on any of them, and with another
        number of them the hash leads elsewhere.
        """
        found = [(pubend, source) for pubend, source in self._pubends.values() if _takes(pubend, source, topic)]
        here = [pubend for pubend, _ in found]
        if not here or (len(here) > 1 and not all(source.is_read for _, source in found)):
            return None
        hashed = int.from_bytes(blake2b(publisher.encode(), digest_size=8).digest(), "big")
        return here[hashed % len(here)]

    def reason(self, topic: str) -> str:
        """Returns why no log of a topic is found, to be put behind a text; "" if that is not known."""
        why = self._troubles.get(topic)
        if not why and any(_takes(*each, topic) for each in self._pubends.values()):
            why = "what its publishers have sent is still being read"
        return f": {why}" if why else ""

    # ------------------------------------------------------------------------------------- what a plugin says

    def _on_found(self, message: LogsFound, now: int, wall: int) -> None:
        known, names = set(self._families), set(self._names)
        replaced = {each.family for each in message.logs if name_of(each.log) in names}
        for found in message.logs:
            if found.log in self._pubends:
                pubend, source = self._pubends[found.log]
                if not source.log.ended:  # a broker of the log's may not have heard that it is gone
                    self._learn(pubend, source, found, now)
                continue
            saved = self._saved.pop(found.log, None)
            is_new = saved is None
            if saved is None:
                # A subscription that was there before a partition, or before the topic was made anew, gets all of it.
                is_later = found.family in known or found.family in replaced
                saved = self._create(found, 0 if is_later else found.decided)
            saved.row = _with_rules(replace(saved.row, voids=tuple(found.voids)), found)
            pubend, _ = self._make(saved, found, is_new=is_new, now=now)
            self._warn(found)
            self._compare_limits(found)
            pubend.begin(now, wall)

    def _compare_limits(self, found: NumberedLog) -> None:
        """Tells the operator before it happens that the log takes larger records than a frame can carry."""
        record_max, event_max = found.capabilities.record_max, self._context.settings.max_delivery_bytes
        if record_max is not None and record_max > event_max:
            text = (
                f"{found.log}: it takes records of {record_max:,} bytes, and a frame carries {event_max:,}:"
                " who wants a larger one gets a gap"
            )
            self._outbox.emit(Alarm(AlarmCode.EVENT_TOO_LARGE, text, found.log))

    def _create(self, found: NumberedLog, created: Tick) -> SavedPubend:
        """Returns the rows of a new pubend."""
        if self._number >= NUMBERS:
            raise ConfigurationError(f"phb.logs: there can be {NUMBERS - STEP:,} logs in the life of a volume")
        row = PubendRow(found.log, created, (found.topic,), family=found.family)
        saved = SavedPubend(self._number, row, members=dict.fromkeys(self._members, created))
        self._number += 1
        return saved

    def _make(
        self, saved: SavedPubend, found: NumberedLog, *, is_new: bool, now: int
    ) -> tuple[Pubend, ForeignLogSource]:
        timers = Timers(self._outbox)
        source = ForeignLogSource(self._context, saved, found, timers, now)
        options = PubendSettings(name_of(found.log), min_retain_seconds=0, min_retain_bytes=0)
        pubend = Pubend(self._context, saved, source, options, timers, None, is_new=is_new, read_only=False)
        self._pubends[found.log] = pubend, source
        self._families.add(found.family)
        self._names.add(name_of(found.log))
        self._add(pubend)
        return pubend, source

    def _learn(self, pubend: Pubend, source: ForeignLogSource, found: NumberedLog, now: int) -> None:
        """Something of a log has changed. Other voids go to the network before anything that lies above them (TK20)."""
        self._warn(found)
        if source.learn(found, now):
            pubend.learn_voids(tuple(found.voids))

    def _warn(self, found: NumberedLog) -> None:
        """Tells the operator how safe a log is, if that has changed: in one alarm, for a later one takes its place."""
        text = "; ".join(found.warnings)
        if text != self._warned.get(found.log, ""):
            self._warned[found.log] = text
            said = f"{found.log}: {text or 'it keeps what publishers have receipts for'}"
            self._outbox.emit(Alarm(AlarmCode.LOG_LESS_SAFE, said, found.log, over=not text))

    def _on_grown(self, grown: Grown, now: int, _wall: int) -> None:
        if grown.log in self._pubends:
            self._pubends[grown.log][1].on_grown_log(grown, now)

    def _on_trouble(self, trouble: LogTrouble, _now: int, _wall: int) -> None:
        self._troubles[trouble.log] = trouble.why
        text = f"{trouble.log}: {trouble.why or 'the log goes on'}"
        self._outbox.emit(Alarm(AlarmCode.LOG_STANDS_STILL, text, trouble.log, over=not trouble.why))

    def _on_ended(self, ended: LogEnded, now: int, _wall: int) -> None:
        """A log is gone for good: once that is durable, its subscribers get a gap up to its end.

        It may be gone since before this life: then its pubend was not opened yet.
        """
        found = self._pubends.get(ended.log)
        if found is not None:
            pubend, source = found
            if not source.log.ended:
                source.gone(ended.why, lambda _now, _wall: pubend.seal())
                self._alarm_gone(ended)
        elif ended.log in self._saved:
            pubend, source = self._make_gone(self._saved[ended.log], now)
            source.gone(ended.why, pubend.begin)
            self._alarm_gone(ended)

    def _alarm_gone(self, ended: LogEnded) -> None:
        self._outbox.emit(Alarm(AlarmCode.LOG_GONE, f"{ended.log}: {ended.why}", ended.log))


class _NoFormat(LogFormat):
    """The format of a log that is gone: nothing of it is ever read."""

    def decode(self, piece: Any, rules: bytes) -> Any:
        raise AssertionError("the log is gone")

    def encode(self, mark: Any, events: Any) -> bytes:
        raise AssertionError("the log is gone")


def _with_rules(row: PubendRow, found: NumberedLog) -> PubendRow:
    """Returns the row with the rules of today, from where nothing was told by those before (TK17)."""
    if row.rules and row.rules[-1][1] == found.rules:
        return row
    since = max(found.decided, row.rules[-1][0]) if row.rules else 0
    return replace(row, rules=(*row.rules, (since, found.rules)))


def _takes(pubend: Pubend, source: ForeignLogSource, topic: str) -> bool:
    return not source.log.ended and carries(pubend.row.topics, topic)

"""Keyed publishing: producers that number their own batches and may repeat them (protocol: keyed-publishing).

A pubend keeps one mark for each producer: the highest (epoch, index) that it has logged. Events at or below the mark
are dropped; holes are allowed. The mark is in the same write as the record, so after a crash both are there or neither.

In the log a producer is stored as a publisher with a name that no other publisher can have. The pubend itself counts
the sequences of this publisher. So recovery, checkpoints and chops do not need to know about keys.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, TypeAlias

from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless.core.outbox import Outbox
from gapless.core.ports import Set
from gapless_phb.core import rows
from gapless_phb.core.publishers.appender import Appender
from gapless_phb.core.publishers.handler import PublishHandler
from gapless_phb.core.publishers.table import PublisherTable
from gapless_phb.core.publishers.validation import SEQUENCE_MAX, BatchCheck, fault_of_name
from gapless_phb.core.records import checksum

Mark: TypeAlias = tuple[int, int]
"""(epoch, index) of the last event of a producer that is logged, or on its way to the disk."""
NO_MARK: Final = (-1, -1)
MARKER: Final = "\x01"
"""The first character of a producer's name in the log. Names of publishers are printable, so none begins with it."""


class Keyed:
    """The producers of keyed batches of one pubend."""

    def __init__(
        self,
        number: int,
        marks: Mapping[str, Mark],
        log: Appender,
        table: PublisherTable,
        publishing: PublishHandler,
        check: BatchCheck,
        outbox: Outbox,
    ) -> None:
        self._number = number
        self._marks = dict(marks)
        self._log = log
        self._table = table
        self._publishing = publishing
        self._check = check
        self._outbox = outbox

    def __len__(self) -> int:
        """How many producers are known."""
        return len(self._marks)

    def open(self, request: OpenRequest, reply_to: Hashable) -> None:
        """Answers that the producer belongs to this pubend. Writes nothing: the first batch does that."""
        fault = self._fault(request.publisher, request.topic)
        self._answer(reply_to, Outcome(Verdict.REJECTED, fault) if fault else Outcome(Verdict.OK))

    def take(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> Outcome | None:
        """Takes the part of a batch that is above the mark.

        Returns None if the answer follows when that part is durable, else the answer. `refusal`: why nothing new can be
        taken now, or "".
        """
        name = logged_name(pub.publisher)
        if fault := self._fault(pub.publisher, None):
            return Outcome(Verdict.REJECTED, fault)
        last = pub.first + pub.events.count - 1
        if last > SEQUENCE_MAX:
            return Outcome(Verdict.INVALID, "an index is beyond what there can be", pub.first)
        known = self._marks.get(name, NO_MARK)
        if (pub.epoch, last) <= known:
            duplicate = Outcome(Verdict.OK, "logged before", last, durable=self._log.durable)
            # The batch that it repeats may still be on its way to the disk.
            self._log.settle([], lambda _now, _wall: self._answer(reply_to, duplicate))
            return None
        refusal = refusal or self._publishing.backlog(pub)
        if refusal:
            return Outcome(Verdict.RETRY, refusal, pub.first)
        if (refused := self._check.refused(pub)) is not None:
            return refused
        dropped = max(0, known[1] - pub.first + 1) if known[0] == pub.epoch else 0
        assert dropped < pub.events.count, "something of the batch is above the mark"
        # Before it is durable: the batch may come again while it is on its way to the disk.
        self._marks[name] = pub.epoch, last
        self._append(name, pub, dropped, reply_to, now, wall)
        return None

    def _append(self, name: str, pub: Pub, dropped: int, reply_to: Hashable, now: int, wall: int) -> None:
        """Appends what of a batch was not logged before.

        A producer has no instance: one constant epoch serves the log, and the mark alone recognises repeats.
        """
        events = pub.events.slice(dropped, pub.events.count)
        publisher = self._table.get(name) or self._table.open(name, "", 0, 0, self._log.opened_at(now, wall))
        self._write(name, self._marks[name])
        logged = Pub(name, publisher.epoch, publisher.assigned + 1, events, pub.pubend, b"", principal=pub.principal)
        self._log.append(
            publisher, logged, (), checksum(events, b""), reply_to, now, wall, self._publishing.on_appended
        )

    def _write(self, name: str, mark: Mark) -> None:
        self._outbox.write([Set(self._log.tables.keyed, rows.key(self._number, name), rows.encode(mark))])

    def _fault(self, producer: str, topic: str | None) -> str:
        """Returns why a producer cannot publish to this pubend, or ""."""
        return fault_of_name(producer, "") or self._publishing.fault(logged_name(producer), topic)

    def _answer(self, reply_to: Hashable, outcome: Outcome) -> None:
        self._outbox.emit(Submitted(reply_to, self._log.pubend, outcome))


def logged_name(producer: str) -> str:
    """Returns the name of a producer among the publishers of a log."""
    return MARKER + producer

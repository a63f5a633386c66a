"""What is written: each event once, where it is logged, and of it nothing but ticks anywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.ports import Put, Set
from gapless_sim.oracles.judge import Judge
from gapless_sim.oracles.matches import noted
from gapless_sim.recording.pubend_logs import LOG, records_apart

if TYPE_CHECKING:
    from gapless.core.ports import Operation
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.accounts import History, Logged
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Row
    from gapless_sim.world.producer import Producer, Publication
    from gapless_sim.world.sharing import SharedRow

PFS = "pfs/"
"""What the name of an SHB's stream of matches begins with; the pubend follows."""


@dataclass(slots=True, eq=False)
class Batch:
    """Publications that were published together, and have not come to light in a log."""

    publications: Sequence[Publication]
    blob: bytes
    """Their events, as they are to be logged."""
    mark: bytes
    """The first of them without its zeros: what does not have this, once its zeros are gone, has no blob either."""
    unseen: int
    put: tuple[str, int] | None = None
    """The broker that has written them last, and which of its lives that was."""


class I6OneLog(Judge):
    """Each event is written once, to the log of one pubend; an SHB keeps 8 + 16 n bytes of one that n match."""

    name = "I6"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._batches: dict[tuple[int, int], Batch] = {}
        """Those that are not known to be logged, by the key of their first publication."""
        self._batches_of: dict[int, list[Batch]] = {}
        """By the keys of all publications."""
        self._often: dict[tuple[int, int], bytes] = {}
        """Blobs of batches of publications that are sent often: so may any record be."""
        model.listeners.append(self.logged)

    def published(self, producer: Producer, publications: Sequence[Publication]) -> None:
        """A batch is on its way."""
        first = publications[0]
        if first.often:
            self._often[first.key, len(publications)] = b"".join(publication.event for publication in publications)
            return
        if (first.key, len(publications)) in self._batches:
            return
        blob = b"".join(publication.event for publication in publications)
        batch = self._batches[first.key, len(publications)] = Batch(
            publications, blob, _dense(first.event), len(publications)
        )
        for publication in publications:
            self._batches_of.setdefault(publication.key, []).append(batch)

    def logged(self, event: Logged) -> None:
        """An event has come to light."""
        for batch in self._batches_of.pop(event.publication.key, ()):
            batch.unseen -= 1
            if not batch.unseen:
                self._batches.pop((batch.publications[0].key, len(batch.publications)), None)

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """Looks at what goes to a disk."""
        if broker.name in self.model.damaged_brokers:
            return
        operations = list(records_apart(operations))
        dense: list[bytes] = []
        for operation in operations:
            if type(operation) is not Put:
                continue
            if operation.stream.startswith(LOG):
                dense = dense or [_dense(_contents(each)) for each in operations]
                self._log(broker, operation, operations, dense)
            elif operation.stream.startswith(PFS):
                self._match(broker, operation)
            else:
                self.fail(f"{broker.name} writes to a stream {operation.stream}, which is neither a log nor a PFS")

    def _log(self, broker: SimBroker, put: Put, operations: Sequence[Operation], dense: Sequence[bytes]) -> None:
        """A record of a log: a batch that nobody has logged yet, and that no other operation has."""
        batch = next((batch for batch in self._batches.values() if put.record.endswith(batch.blob)), None)
        pubend = put.stream[len(LOG) :]
        if batch is None:
            if self.model.has_lost_disks or any(map(put.record.endswith, self._often.values())):
                return  # what a lost disk had is written again
            lost = map(self.model.publications.__getitem__, self.model.given_up)
            if any(put.record.endswith(publication.event) for publication in lost):
                return  # it was logged where an operator has given it up
            self.fail(
                f"{pubend} writes a record at {put.index} of what nobody has published, or what is logged already"
            )
        first = batch.publications[0].key
        if batch.put is not None and self._lives(*batch.put):
            self.fail(
                f"publications {first} ff. are written to {pubend} at {put.index}, and were before, by {batch.put[0]}"
            )
        batch.put = broker.name, broker.boots
        for other, contents in zip(operations, dense, strict=True):
            if batch.mark in contents and other is not put and batch.blob in _contents(other):
                self.fail(f"publications {first} ff. are written to {pubend}, and by {other} as well")

    def _lives(self, name: str, boots: int) -> bool:
        """Whether a broker's life is still that one, so that nothing can be lost that it wrote."""
        broker = self.world.brokers[name]
        return broker.running and broker.boots == boots

    def _match(self, broker: SimBroker, put: Put) -> None:
        """A block of an SHB: every tick in it matches somebody, and it is no longer than that takes."""
        pubend: PubendId = put.stream[len(PFS) :]
        history = self.model.histories.get(pubend)
        if history is None or not history.sound:
            return
        try:
            notes = noted(put.index, put.record)
        except (ValueError, IndexError) as error:
            self.fail(f"the PFS of {broker.name} gets at {put.index} of {pubend} what is no block: {error}")
        for tick, matches in notes.items():
            self._judge_match(broker, pubend, history, tick, matches)
        most = 8 * len(notes) + 16 * notes.total()
        if len(put.record) > most:
            self.fail(f"the PFS block of {pubend} at {put.index} has {len(put.record)} bytes, and may have {most}")

    def _judge_match(self, broker: SimBroker, pubend: PubendId, history: History, tick: Tick, noted: int) -> None:
        event = history.events.get(tick)
        if event is None:
            self.fail(f"the PFS of {broker.name} has {tick} of {pubend}, where nothing is logged")
        matches = sum(row.matches(event) for row in self._at(broker))
        if not matches:
            self.fail(f"the PFS of {broker.name} has {tick} of {pubend}, which matches nobody there")
        if self.world.options.pfs == "imprecise":
            matches = sum(1 for _ in self._at(broker))  # of all in the block nobody knows which ticks they matched
        if not 0 < noted <= matches:
            self.fail(f"the PFS of {broker.name} notes {noted} matches of {tick} of {pubend}, of {matches}")

    def _at(self, broker: SimBroker) -> Iterator[Row | SharedRow]:
        for account in self.model.accounts.values():
            if account.broker == broker.name and account.durable:
                yield account.row
        yield from (row for home, row in self.model.shared_rows if home == broker.name)


def _contents(operation: Operation) -> bytes:
    if type(operation) is Put:
        return operation.record
    return operation.value if type(operation) is Set else b""


def _dense(contents: bytes) -> bytes:
    """All but the zeros: much of what is published is padding, and to search that is slow."""
    return contents.translate(None, b"\0")

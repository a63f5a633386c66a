"""Archives made by hand, and a broker and a Spark that are as small as a test needs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import Self

import gapless
from gapless.core.client import Gap
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.ticks import STEP, PubendId, Tick, tick_at
from gapless.core.wire.delivered import DeliveredColumns
from gapless_spark.offsets import offset_of
from gapless_spark.pipelines.contents import day_of, described
from gapless_spark.pipelines.manifest import VERSION, ArchiveFolder, Description, Manifest
from gapless_spark.rows import COLUMNS, events_batch, gap_batch

NETWORK = "net"
P, Q = "p@1", "q@1"
K = "orders.0@id"
"""A partition of a Kafka topic."""
BASE = tick_at(1_800_000_000_000)
"""2027-01-15, 08:00 UTC."""
DAY = (tick_at(1_800_086_400_000) - BASE) // STEP
"""So many ticks of one pubend are a day."""


def tick(number: int) -> Tick:
    """The tick of an event with this number."""
    return BASE + STEP * number


def events_table(pubend: PubendId, numbers: Iterable[int], gaps: Iterable[tuple[int, int]] = ()) -> Any:
    """The rows of events with these numbers, and of gaps behind one number and up to another."""
    batches = []
    for number in numbers:
        body = b"%d" % number
        event = encode_event("t.a", {"n": number, "late": True, "f": 1.0}, Extras(priority=7, type="x"), body)
        columns = EventColumns.of([event], [len(body)]).batch([tick(number)])
        batches.append(events_batch(pubend, [DeliveredColumns.parse(columns.payload(1), 0)], COLUMNS))
    batches += [gap_batch(Gap(pubend, tick(start), tick(end), "released"), COLUMNS) for start, end in gaps]
    return pa.Table.from_batches(batches, COLUMNS).sort_by("tick")


def kafka_table(pubend: PubendId, times: Mapping[Tick, datetime], gaps: Iterable[tuple[Tick, Tick]] = ()) -> Any:
    """The rows of records of a Kafka partition, by their ticks, and of gaps."""
    batches = []
    for at, time in times.items():
        event = encode_event("t.a", {"n": at}, Extras(timestamp=round(1000 * time.timestamp())), b"x")
        columns = EventColumns.of([event], [1]).batch([at])
        batches.append(events_batch(pubend, [DeliveredColumns.parse(columns.payload(1), 0)], COLUMNS))
    batches += [gap_batch(Gap(pubend, start, end, "released"), COLUMNS) for start, end in gaps]
    return pa.Table.from_batches(batches, COLUMNS).sort_by("tick")


def write_rows(directory: Path, table: Any, name: str = "part-0") -> None:
    """Rows in a directory for each of their days."""
    days = [day_of(at) for at in table["tick"].to_pylist()]
    for day in sorted(set(days)):
        target = directory / f"date={day}"
        target.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.filter(pa.array([each == day for each in days])), target / f"{name}.parquet")


def token(ticks: Mapping[PubendId, Tick]) -> gapless.CheckpointToken:
    """A position of the archive's subscription."""
    return gapless.CheckpointToken(NETWORK, ticks, 7, 1, b"sealed!!")


def make_archive(
    path: Path, topics: tuple[str, ...] = ("t.#",), start: Mapping[PubendId, Tick] | None = None
) -> ArchiveFolder:
    """An archive without a batch."""
    folder = ArchiveFolder(path)
    begin = {P: tick(0)} if start is None else dict(start)
    folder.describe(
        Description(
            version=VERSION,
            network=NETWORK,
            client_id="",
            subscription="sub",
            topics=topics,
            selector="",
            start=begin,
            token=str(token(begin)),
        )
    )
    return folder


def add_batch(
    folder: ArchiveFolder,
    ends: Mapping[PubendId, int],
    numbers: Mapping[PubendId, Iterable[int]],
    gaps: Mapping[PubendId, Sequence[tuple[int, int]]] | None = None,
) -> Manifest:
    """One more batch, which ends at these numbers."""
    tables = [events_table(pubend, wanted, (gaps or {}).get(pubend, ())) for pubend, wanted in numbers.items()]
    begins = {pubend: tick(0) for pubend in ends}
    return add_rows(folder, {pubend: tick(at) for pubend, at in ends.items()}, begins, *tables)


def add_rows(
    folder: ArchiveFolder, ends: Mapping[PubendId, Tick], begins: Mapping[PubendId, Tick], *tables: Any
) -> Manifest:
    """One more batch of these rows, each table of one pubend, which begins at `begins` if it was in no batch before."""
    last = folder.last()
    number = 0 if last is None else last.batch + 1
    start = folder.described().start if last is None else last.end
    directory = folder.batch_directory(number)
    directory.mkdir(parents=True)
    for at, table in enumerate(tables):
        write_rows(directory, table, f"part-{at}")
    files, lost = described(folder.path, directory)
    end = {**start, **ends}
    manifest = Manifest(
        first=number,
        batch=number,
        files=files,
        start={**begins, **start},
        end=end,
        gaps=lost,
        token=str(token(end)),
    )
    folder.commit(manifest)
    return manifest


def numbers_in(folder: ArchiveFolder) -> dict[PubendId, list[int]]:
    """The events of an archive, as its manifests say, by pubend and in the order of the files."""
    found: dict[PubendId, list[int]] = {}
    for manifest in folder.manifests():
        for file in manifest.files:
            rows = pq.ParquetFile(folder.path / file.path).read().to_pylist()
            found.setdefault(file.pubend, []).extend(int(row["payload"]) for row in rows if row["kind"] == "event")
    return found


def every_file(folder: ArchiveFolder) -> set[str]:
    """All files of rows below it, whether they count or not."""
    return {path.relative_to(folder.path).as_posix() for path in folder.events.rglob("*.parquet")}


# ------------------------------------------------------------------------------------ a broker


@dataclass
class Broker:
    """A broker with one subscription, of which it knows everything."""

    numbers: dict[PubendId, list[int]] = field(default_factory=dict)
    gaps: dict[PubendId, list[tuple[int, int]]] = field(default_factory=dict)
    network: str = NETWORK
    created: bool = False
    in_use: bool = False
    acknowledged: dict[PubendId, Tick] = field(default_factory=dict)

    def heads(self) -> dict[PubendId, Tick]:
        """Up to where there is something."""
        names = sorted({*self.numbers, *self.gaps})
        return {
            name: tick(max([*self.numbers.get(name, []), *(end for _, end in self.gaps.get(name, []))]))
            for name in names
        }

    @contextmanager
    def connected(
        self, url: str, client_id: str = "", wait: float = 0, credentials: object = None
    ) -> Iterator[Connection]:
        """In the place of `connected`."""
        yield Connection(self)


class Connection:
    """What an archive asks of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.network = broker.network

    def attach(self, name: str, *topics: str, selector: str = "", start: Any = None) -> gapless.CheckpointToken:
        self._broker.created = True
        if isinstance(start, gapless.CheckpointToken):
            return start
        return token({pubend: tick(0) for pubend in self._broker.numbers})

    def heads(self, name: str, after: gapless.CheckpointToken) -> gapless.CheckpointToken:
        ahead = {pubend: at for pubend, at in self._broker.heads().items() if at > after.ticks.get(pubend, 0)}
        return after.advance(ahead) if ahead else after

    def subscriptions(self) -> list[Any]:
        behind = [
            number
            for pubend, numbers in self._broker.numbers.items()
            for number in numbers
            if tick(number) > self._broker.acknowledged.get(pubend, 0)
        ]
        return [SimpleNamespace(client_id="", name="sub", lag_events=len(behind), lag_complete=True)]

    def lease(self, name: str, owner: str, in_use: str, timeout: float) -> Any:
        if self._broker.in_use:
            raise TimeoutError
        return SimpleNamespace(release=lambda: None)

    def ack(self, name: str, position: gapless.CheckpointToken, timeout: float = 0) -> None:
        for pubend, at in position.ticks.items():
            self._broker.acknowledged[pubend] = max(at, self._broker.acknowledged.get(pubend, 0))


# ------------------------------------------------------------------------------------ a Spark


class Chain:
    """A builder of which only what was said in the end counts."""

    def __init__(self, said: dict[str, Any], end: Callable[[dict[str, Any]], Any], ending: str) -> None:
        self._said, self._end, self._ending = said, end, ending

    def __getattr__(self, name: str) -> Any:
        def say(*values: Any, **options: Any) -> Any:
            self._said.setdefault(name, []).append((values, options))
            return self._end(self._said) if name == self._ending else self

        return say


class Spark:
    """Reads a broker's subscription in batches, as the real one does: plans, logs where a batch ends, and runs it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.conf = SimpleNamespace(set=lambda *_: None)

    def newSession(self) -> Self:  # noqa: N802 - Spark's name
        return self

    @property
    def readStream(self) -> Chain:  # noqa: N802 - Spark's name
        return Chain({}, self._frame, "load")

    def _frame(self, said: dict[str, Any]) -> Any:
        return SimpleNamespace(
            writeStream=Chain(
                {"source": said["options"][0][1]}, lambda all_said: Query(self._broker, all_said), "start"
            )
        )


class Query:
    """Runs in the call that starts it."""

    isActive = False  # noqa: N815 - Spark's name

    def __init__(self, broker: Broker, said: dict[str, Any]) -> None:
        source = said["source"]
        self._broker = broker
        self._function = said["foreachBatch"][0][0][0]
        self._checkpoint = Path(said["option"][0][0][1].removeprefix("file://"))
        self._error: Exception | None = None
        position = gapless.CheckpointToken.parse(source["startingOffsets"])
        try:
            for number in range(1000):
                end = self._end(position, int(source["maxEventsPerTrigger"]))
                if end == position:
                    return
                offsets = self._checkpoint / "offsets"
                offsets.mkdir(parents=True, exist_ok=True)
                (offsets / str(number)).write_text(f"v1\n{json.dumps({'batchWatermarkMs': 0})}\n{offset_of(end)}")
                if number:  # as Spark: the batch before is committed when there is another one
                    Connection(broker).ack("sub", position)
                self._function(Frame(broker, position, end), number)
                position = end
        except Exception as error:  # noqa: BLE001 - as Spark does
            self._error = error

    def _end(self, position: gapless.CheckpointToken, events: int) -> gapless.CheckpointToken:
        ends: dict[PubendId, Tick] = {}
        for pubend, head in self._broker.heads().items():
            start = position.ticks.get(pubend, 0)
            ahead = [number for number in self._broker.numbers.get(pubend, []) if tick(number) > start]
            if head > start:
                ends[pubend] = tick(ahead[events - 1]) if len(ahead) > events else head
        return position.advance(ends) if ends else position

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        pass


class Frame:
    """The rows of a batch."""

    def __init__(self, broker: Broker, start: gapless.CheckpointToken, end: gapless.CheckpointToken) -> None:
        self._broker, self._start, self._end = broker, start, end

    def selectExpr(self, *what: str) -> Self:  # noqa: N802 - Spark's name
        return self

    def sortWithinPartitions(self, *columns: str) -> Self:  # noqa: N802 - Spark's name
        return self

    @property
    def write(self) -> Chain:
        return Chain({}, self._write, "parquet")

    def _write(self, said: dict[str, Any]) -> None:
        directory = Path(said["parquet"][0][0][0].removeprefix("file://"))
        assert said["mode"] == [(("overwrite",), {})]
        if directory.exists():
            for path in directory.rglob("*.parquet"):
                path.unlink()
        for at, (pubend, end) in enumerate(sorted(self._end.ticks.items())):
            start = self._start.ticks.get(pubend, 0)
            numbers = [each for each in self._broker.numbers.get(pubend, []) if start < tick(each) <= end]
            gaps = [gap for gap in self._broker.gaps.get(pubend, []) if start < tick(gap[1]) <= end]
            write_rows(directory, events_table(pubend, numbers, gaps), f"part-{at}")
        directory.mkdir(parents=True, exist_ok=True)

"""What should have come out of the kills, computed without Spark, and what did: row by row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

from gapless.core.stream.ticks import wall_at
from gapless_flights.data import properties_of, topic_of

Place: TypeAlias = tuple[str, int]
"""The pubend and the tick of a flight: what its publisher's receipt said."""
Published: TypeAlias = Mapping[Place, str]
"""The flights, each in its place."""
Result: TypeAlias = tuple[str, str, tuple[tuple[str, int | str], ...]]
"""What became of a flight: topic, body, properties."""

EXAMPLES: Final = 3
MILES: Final = 500
_UNIX: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass
class Verdict:
    """How what was found differs from what was expected."""

    expected: int = 0
    found: int = 0
    missing: int = 0
    doubled: int = 0
    wrong: int = 0
    """Rows that should not be there, or not like this."""
    examples: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whether it is what was expected, each row once."""
        return self.expected == self.found and not (self.missing or self.doubled or self.wrong)

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def note(self, what: str) -> None:
        """Keeps an example of what is not right."""
        if len(self.examples) < EXAMPLES:
            self.examples.append(what)


def row_of(place: Place, line: str) -> dict[str, Any]:
    """The row of the source that a flight is."""
    pubend, tick = place
    properties = {name: str(value) for name, value in properties_of(line).items()}
    return {
        "kind": "event",
        "pubend": pubend,
        "tick": tick,
        "tick_from": tick,
        "topic": topic_of(line),
        "key": None,
        "properties": properties,
        "payload": line.encode(),
        "published_at": _UNIX + timedelta(milliseconds=wall_at(tick)),
    }


def judge_rows(published: Published, rows: Iterable[Mapping[str, Any]]) -> Verdict:
    """Whether the rows are the published flights, each once, and right in every column."""
    verdict = Verdict(expected=len(published))
    seen: set[Place] = set()
    for row in rows:
        verdict.found += 1
        place = row["pubend"], row["tick"]
        line = published.get(place)
        if place in seen:
            verdict.doubled += 1
            verdict.note(f"twice: {row}")
        elif line is None or dict(row) != row_of(place, line):
            verdict.wrong += 1
            verdict.note(f"{row} for {line}")
        seen.add(place)
    absent = published.keys() - seen
    verdict.missing = len(absent)
    for place in islice(absent, EXAMPLES):
        verdict.note(f"missing: {place} {published[place]}")
    return verdict


def computed(place: Place, line: str) -> Result | None:
    """What `driver.through_spark` makes of a flight; None: nothing."""
    fields = line.split(",")
    departure, arrival, carrier, number, tail, origin, miles = (fields[at] for at in (5, 8, 9, 10, 11, 12, 15))
    if miles == "NA" or int(miles) <= MILES or carrier == "UA" or "NA" in (departure, arrival):
        return None
    made_good = int(departure) - int(arrival)
    body = f"{place[0]},{place[1]},{carrier},{number},{made_good}"
    return f"made_good.{origin}", body, (("key", tail), ("made_good", made_good))


def judge_results(published: Published, results: Iterable[Result]) -> Verdict:
    """Whether the results are those of the published flights, each once. They differ, since each names its place."""
    wanted = Counter(filter(None, (computed(place, line) for place, line in published.items())))
    found = Counter(results)
    doubled = Counter({result: found[result] - 1 for result in found if result in wanted})
    missing, wrong = wanted - found, found - wanted - doubled
    verdict = Verdict(wanted.total(), found.total(), missing.total(), doubled.total(), wrong.total())
    for what, those in (("missing", missing), ("twice", +doubled), ("wrong", wrong)):
        for result in islice(those, EXAMPLES):
            verdict.note(f"{what}: {result}")
    return verdict


def parquet_rows(directory: Path) -> Iterator[Mapping[str, Any]]:
    """The rows that a streaming query has committed: those of the files that Spark's own log names."""
    from pyarrow import parquet

    for file in committed(directory):
        for batch in parquet.ParquetFile(file).iter_batches():
            for row in batch.to_pylist():
                yield {**row, "properties": dict(row["properties"])}


def committed(directory: Path) -> list[Path]:
    """The files that count; whatever else is there was left by a task or a batch that was killed."""
    names: set[str] = set()
    log = directory / "_spark_metadata"
    for entry in sorted(log.iterdir()):
        if entry.name.startswith("."):
            continue
        version, *lines = entry.read_text("utf-8").splitlines()
        assert version == "v1", f"{entry} is of another version: {version}"
        names |= {Path(json.loads(line)["path"]).name for line in lines}
    return [directory / name for name in sorted(names)]

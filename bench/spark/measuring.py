"""One query: it reads what it is given to the end, is counted, and what Spark says of its batches are the figures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.rounds import Figures
from bench.spark.contender import Serving
from bench.spark.work import BODY, TENTHS, WANTED, Sizes, Work

POLL_SECONDS: Final = 0.05
CHECK: Final = "check"


class WrongError(Exception):
    """A query read something else than it should have."""


@dataclass(frozen=True)
class Count:
    """What came out."""

    rows: int
    bytes: int
    numbers: int
    """The sum of the numbers of the events; 0 where they are not read."""


def expected(work: Work, total: int) -> Count:
    """What should come out of so many events."""
    numbers = range(WANTED, total, TENTHS) if work.selective else range(total)
    return Count(len(numbers), BODY * len(numbers), sum(numbers) if "number" in work.columns else 0)


def check(spark: Any, serving: Serving, work: Work, sizes: Sizes, turn: int) -> None:
    """Reads everything once and adds it up. Raises WrongError."""
    from pyspark.sql import functions

    frame = serving.stream(spark, work, turn)
    number = frame.number.cast("bigint") if "number" in work.columns else functions.lit(0)
    sums = [functions.count("payload"), functions.sum(functions.length("payload")), functions.sum(number)]
    named = [each.alias(name) for each, name in zip(sums, ("rows", "bytes", "numbers"), strict=True)]
    total = sizes.total_of(work)
    batches = _run(frame.observe(CHECK, *named), -(-total // sizes.batch_of(work)), sizes.limit_seconds)
    seen = [batch["observedMetrics"][CHECK] for batch in batches]
    found = Count(*(sum(each[name] or 0 for each in seen) for name in ("rows", "bytes", "numbers")))
    if found != expected(work, total):
        raise WrongError(f"it read {found}, and not {expected(work, total)}")


def measure(spark: Any, serving: Serving, work: Work, sizes: Sizes, turn: int) -> Figures:
    """Reads everything once, for nobody. Raises WrongError if the batches are not those that it should take."""
    count = sizes.total_of(work) // sizes.batch_of(work)
    batches = _run(serving.stream(spark, work, turn), count, sizes.limit_seconds)
    rows = [batch["numInputRows"] for batch in batches]
    if sum(rows) not in {sizes.total_of(work), sizes.total_of(work) // work.taken}:
        raise WrongError(f"its batches have {rows} rows")
    passed = sizes.total_of(work) / sum(rows)
    times = [batch["durationMs"]["triggerExecution"] / 1000 for batch in batches]
    rates = [passed * some / seconds for some, seconds in zip(rows, times, strict=True)]
    return {"events_per_second": median(rates), "batch_ms": 1000 * median(times)}


def _run(frame: Any, count: int, limit_seconds: float) -> Sequence[Mapping[str, Any]]:
    """Runs a query for so many batches with rows, and returns what Spark says of them."""
    found: dict[int, Mapping[str, Any]] = {}
    with TemporaryDirectory(prefix="gapless-bench-checkpoint-") as checkpoint:
        writer = frame.writeStream.format("noop").outputMode("append")
        query = writer.option("checkpointLocation", str(Path(checkpoint))).start()
        deadline = time.monotonic() + limit_seconds
        try:
            while len(found) < count:
                if not query.isActive:
                    raise WrongError(f"the query failed: {query.exception()}")
                if time.monotonic() > deadline:
                    raise WrongError(f"it took longer than {limit_seconds:g} s")
                time.sleep(POLL_SECONDS)
                _take(query, found)
        finally:
            query.stop()
    return [found[number] for number in sorted(found)][:count]


def _take(query: Any, found: dict[int, Mapping[str, Any]]) -> None:
    for progress in query.recentProgress:
        batch = json.loads(progress.json)
        if batch["numInputRows"] and batch["batchId"] not in found:
            found[batch["batchId"]] = batch

"""The Spark program that is killed: `python driver.py URL DIRECTORY EVENTS`, EVENTS being the most of one batch.

Two queries over the flights: all of them into Parquet, and from some of them a computation that goes into another
topic. A line of JSON says how far a query is. It ends when its standard input does, or when a query fails.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

PARQUET: Final = "parquet"
SINK: Final = "sink"
QUERIES: Final = (PARQUET, SINK)
"""Their names, which are those of their subscriptions, too."""
SELECTOR: Final = "distance > 500"
"""Of the query that computes: the broker's part of it."""
POLL_SECONDS: Final = 0.1
STARTS: Final = 4
"""So often a query is started for which Spark is too slow: on a busy machine the first ones may be."""
MISHAPS: Final = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect back",
)
"""What Spark says when it gives up a Python of its own that does not answer within ten seconds."""
OURS: Final = "GAPLESS_"
"""In what the connector says is wrong."""


def is_mishap(words: str) -> bool:
    """Whether Spark gave up by itself, and nothing else: whatever gapless has to do with is none."""
    return OURS not in words and any(mishap in words for mishap in MISHAPS)


def main(url: str, directory: Path, events: str) -> None:
    """Runs both queries."""
    spark = session()
    running = [into_parquet(spark, url, directory, events), through_spark(spark, url, directory, events)]
    stop = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(stop,), daemon=True).start()
    said: dict[str, int] = {}
    while not stop.wait(POLL_SECONDS):
        for query in running:
            if not query.isActive:
                sys.exit(f"the query {query.name} is over: {query.exception()}")
            _say(query, said)
    for query in running:
        query.stop()
    spark.stop()


def session() -> Any:
    """As many tasks as on a small machine, and a failed one is tried again as on a cluster."""
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master("local[2,4]").appName("gapless kills")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    # It starts often and lives shortly.
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    # As Parquet has times today; Spark's own default is a type without a time zone, which Parquet has given up.
    builder = builder.config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return builder.config("spark.driver.memory", "1g").getOrCreate()


def into_parquet(spark: Any, url: str, directory: Path, events: str) -> Any:
    """All flights as they are."""
    frame = _source(spark, url, PARQUET, events).load()
    return _started(frame, PARQUET, directory, "parquet", path=str(directory / "rows"))


def through_spark(spark: Any, url: str, directory: Path, events: str) -> Any:
    """Of some flights, how many minutes they made good on their way: `proof.computed` is the same in Python."""
    frame = _source(spark, url, SINK, events).option("selector", SELECTOR).load()
    frame = frame.selectExpr("pubend", "tick", "split(cast(payload as string), ',') as field")
    frame = frame.where("field[9] != 'UA' and field[5] != 'NA' and field[8] != 'NA'")
    frame = frame.selectExpr("*", "cast(field[5] as bigint) - cast(field[8] as bigint) as made_good")
    frame = frame.selectExpr(
        "concat('made_good.', field[12]) as topic",
        "field[11] as key",
        "map('made_good', made_good) as properties",
        "concat_ws(',', pubend, tick, field[9], field[10], made_good) as payload",
    )
    return _started(frame, SINK, directory, "gapless", brokers=url)


def _source(spark: Any, url: str, name: str, events: str) -> Any:
    options = {"brokers": url, "subscription": name, "topics": "flights.#", "startingOffsets": "earliest"}
    return spark.readStream.format("gapless").options(**options, maxEventsPerTrigger=events)


def _started(frame: Any, name: str, directory: Path, sink: str, **options: str) -> Any:
    writer = frame.writeStream.queryName(name).format(sink).outputMode("append").options(**options)
    writer = writer.option("checkpointLocation", str(directory / f"checkpoint-{name}"))
    for _ in range(STARTS):
        query = writer.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(POLL_SECONDS)
        words = str(query.exception())
        if query.isActive or not is_mishap(words):
            break
        print(json.dumps({"mishap": f"the query {name} is over: {words[:200]}"}), flush=True)
    return query


def _say(query: Any, said: dict[str, int]) -> None:
    """How far a query is, if it has come further."""
    progress = query.lastProgress
    if progress is None:
        return
    fields = json.loads(progress.json)
    if fields["batchId"] == said.get(query.name) or not fields["numInputRows"]:
        return
    said[query.name] = fields["batchId"]
    end = fields["sources"][0]["endOffset"]
    ticks = {pubend: tick for pubend, tick in end.items() if not pubend.startswith("$")}
    print(json.dumps({"query": query.name, "batch": fields["batchId"], "end": ticks}), flush=True)


def _wait_for_the_end(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])

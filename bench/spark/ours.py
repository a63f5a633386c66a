"""gapless: one broker with both roles on RocksDB and TCP; a durable subscription for each query.

The subscriptions are there before the events, as those of a query that runs are: what they select is then known to the
broker, and they read it from the disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from bench.processes import running_broker
from bench.spark.work import PARTITIONS, WANTED, WORKS, Event, Sizes, Work, events

TOPIC: Final = "t"
SELECTOR: Final = f"tenth = {WANTED}"
PORTION: Final = 2000
BATCH: Final = 250
CONFIGURATION: Final = f"""
[[phb.pubends]]
name = "default"
count = {PARTITIONS}
min_retain_bytes = 100_000_000_000
"""
NARROW: Final = "tick bigint, payload binary"
WIDE: Final = (
    "kind string, pubend string, tick bigint, topic string, key string, properties map<string,string>,"
    " payload binary, published_at timestamp"
)


class Gapless:
    """Selects in the broker."""

    title = "gapless"
    works: Sequence[str] = tuple(WORKS)
    filters_in = "the broker"

    def missing(self) -> str:
        """It is here."""
        return ""

    def jars(self) -> Sequence[Path]:
        """None."""
        return ()

    @contextlib.contextmanager
    def serving(self, directory: Path, sizes: Sizes, turns: int) -> Iterator[Subscriptions]:
        """Subscribes, then publishes."""
        import gapless

        with running_broker(CONFIGURATION, directory) as broker:
            with gapless.sync.connect(broker.url) as connection:
                for name, work in WORKS.items():
                    for turn in range(turns):
                        connection.attach(f"{name}-{turn}", TOPIC, selector=_selector(work), start="earliest")
                with connection.session() as session:
                    _publish(session, sizes.events)
            yield Subscriptions(broker.url, sizes)


class Subscriptions:
    """One for each query."""

    def __init__(self, url: str, sizes: Sizes) -> None:
        self._url = url
        self._sizes = sizes

    def stream(self, spark: Any, work: Work, turn: int) -> Any:
        """The limit counts the events that are selected."""
        name = next(name for name, each in WORKS.items() if each == work)
        frame = (
            spark.readStream.format("gapless")
            .option("brokers", self._url)
            .option("subscription", f"{name}-{turn}")
            .option("topics", TOPIC)
            .option("selector", _selector(work))
            .option("maxEventsPerTrigger", self._sizes.batch_of(work) // work.taken)
            .schema(WIDE if "number" in work.columns else NARROW)
            .load()
        )
        return frame.withColumn("number", frame.properties["number"]) if "number" in work.columns else frame


def _selector(work: Work) -> str:
    return SELECTOR if work.selective else ""


def _publish(session: Any, count: int) -> None:
    """To as many pubends as Kafka has partitions, each event to its own."""
    publishers: dict[str, Any] = {}
    numbers = iter(range(1000))
    while len(publishers) < PARTITIONS:  # a publisher's name decides, and nobody knows how
        publisher = session.publisher("elsewhere", name=f"bench-{next(numbers)}")
        publishers.setdefault(publisher.send(b"").pubend, publisher)
    remaining = events(count)
    while portion := list(islice(remaining, PORTION)):
        for turn, publisher in enumerate(publishers.values()):
            for _ in publisher.send_all([_message(each) for each in portion if each.partition == turn]):
                pass


def _message(event: Event) -> Any:
    import gapless

    return gapless.Message(event.body, {"key": event.key, "number": event.number, "tenth": event.tenth}, TOPIC)

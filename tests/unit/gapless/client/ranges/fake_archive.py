"""An archive in memory, of what a fake broker has logged; it can be slow, broken, and have holes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from gapless.core.stream.events import Event
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import PubendId, Tick
from unit.gapless.client.fake_broker import BASE, PUBEND, FakeBroker


class FakeArchive:
    """Everything that was logged when it was made, but for its holes."""

    def __init__(
        self,
        broker: FakeBroker,
        *,
        network: str = "net",
        topics: Sequence[str] = ("#",),
        selector: str = "",
        holes: Sequence[tuple[Tick, Tick]] = (),
    ) -> None:
        self.network = network
        self.topics = topics
        self.selector = selector
        self.store(broker)
        for start, end in holes:
            self.known[PUBEND].remove(start, end)
        self.read = 0
        """How many events were asked for."""
        self.errors: list[Exception] = []
        """Raised by the next events that are asked for, once each."""
        self.held = threading.Event()
        """Nothing is read before it is set."""
        self.held.set()
        self.hold_at: Tick = 0
        """Held only from here on."""
        self.threads: set[int] = set()

    def store(self, broker: FakeBroker) -> None:
        """All that a broker has by now."""
        self.stored = [event for pubend in broker.streams for event in events_of(broker, pubend)]
        self.known = {pubend: IntervalSet([(BASE, stream.newest)]) for pubend, stream in broker.streams.items()}

    def covered(self, pubend: PubendId) -> list[tuple[Tick, Tick]]:
        self.threads.add(threading.get_ident())
        assert self.hold_at or self.held.wait(10)
        return list(self.known[pubend])

    def events(self, pubend: PubendId, start: Tick, end: Tick) -> Iterator[Event]:
        for event in self.stored:
            if event.pubend == pubend and start < event.tick <= end:
                assert self.known[pubend].covers(event.tick - 1, event.tick), "what is not covered is not asked for"
                assert event.tick < self.hold_at or self.held.wait(10)
                self.threads.add(threading.get_ident())
                if self.errors:
                    raise self.errors.pop(0)
                self.read += 1
                yield event


def events_of(broker: FakeBroker, pubend: PubendId = PUBEND) -> list[Event]:
    """What a pubend has, as subscribers would get it."""
    stream = broker.streams[pubend]
    rows = zip(stream.ticks, stream.headers, stream.events, stream.body_lengths, strict=True)
    return [
        Event(header.topic, header.properties, header.extras, event[len(event) - length :], tick, pubend)
        for tick, header, event, length in rows
    ]

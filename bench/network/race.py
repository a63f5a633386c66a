"""New subscriptions under publishing and restarts of IBs: none loses an event that it is owed.

In virtual time, two levels of IBs, an SHB behind each way. For each value there are subscriptions at all SHBs, begun a
little after each other while events of just that value are published, and nobody wanted the value before: so the
network filters by an interest that is on its way. What a subscription is owed is every event of its value behind
where it was told that it begins. It counts as lost what has not come when it is given up, long after all else. Who
waits for long is counted, too: where each waits longer than the one before, the last ones lose only what is late.

Without stamps, which say what interest silence was filtered with, the network takes what it left out for silence: the
same again with a router of which each piece of filtered knowledge says that nothing was filtered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from bench.network.proof import Proof, add_options
from bench.papers.experiment import Bar, Figure, Sizes
from bench.papers.virtual import TOPIC, Setup, Stage, names_on_each, play
from gapless.core.client import Delivery
from gapless.core.stream.stamps import RAW
from gapless_routing.common.census import InterestByDirection
from gapless_routing.common.interest import Decision
from gapless_sim.recording.observation import Oracle
from gapless_sim.world.application import SimClient
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.producer import Outbox, Producer, Publication, key_of

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.stream.ticks import PubendId, Tick

__all__ = ["PROOF", "add_options", "run"]

CELLS = "phb1:phb ib1+ib2<phb1 ib3+ib4<ib1 ib5+ib6<ib1 shb1:shb<ib3 shb2:shb<ib3 shb3:shb<ib5 shb4:shb<ib5"
IBS = ("ib1", "ib2", "ib3", "ib4", "ib5", "ib6")
SHBS = ("shb1", "shb2", "shb3", "shb4")
LINK = 3 * MILLISECOND
SUBSCRIPTIONS = 20_000
WITHOUT_STAMPS = 800
EVERY = 20 * MILLISECOND
"""A new value comes so often."""
PUBLISHED_AT = tuple(each * MILLISECOND for each in (0, 6, 12, 18, 27, 36, 60, 120))
"""After its first subscription: when its events are published."""
LATER = (0, 9, 18, 27)
"""By so many milliseconds the subscriptions of a value follow each other; each SHB has each of these in turn."""
LOOK = 250 * MILLISECOND
PATIENCE = 30 * SECOND
"""A subscription is given up so long after it was begun …"""
SLOW = 5 * SECOND
"""… and is slow if it has not got all that it is owed so long after that."""
RESTART_EVERY = 2.0
DOWN = 0.4


@dataclass(slots=True, eq=False)
class Newcomer:
    """A subscription to one value."""

    row: Row
    value: Value
    begun_at: int
    begins: Mapping[PubendId, Tick] | None = None
    """Where it was told that it begins."""
    got: set[int] = field(default_factory=set)
    """Keys of what it was handed."""
    twice: int = 0
    consumer: Consumer | None = None

    def missing(self) -> set[int] | None:
        """Keys of what it is owed and has not got; None while that is not known."""
        begins, receipts = self.begins, self.value.receipts
        if begins is None or len(receipts) < len(PUBLISHED_AT):
            return None
        return {key for key, (pubend, tick) in receipts.items() if tick > begins.get(pubend, 0)} - self.got


@dataclass(slots=True, eq=False)
class Value:
    """What a few subscriptions want, and what was published of it."""

    number: int
    receipts: dict[int, tuple[PubendId, Tick]] = field(default_factory=dict)
    """Where each event is, by key."""


class Race(Oracle):
    """Begins subscriptions, publishes for them, and counts what they lose."""

    def __init__(self, stage: Stage, subscriptions: int) -> None:
        super().__init__(stage.world)
        self.done = self.lost = self.losers = self.twice = self.owed = self.late = self.slow = 0
        """`owed`: so many events were owed in all; `late`: so many subscriptions began before the last event."""
        self.values = subscriptions // len(SHBS)
        self._stage = stage
        self._by_row: dict[int, Newcomer] = {}
        self._by_key: dict[int, Value] = {}
        self._producers: list[Producer] = []
        self._clients: dict[str, SimClient] = {}
        for name in names_on_each(2, "phb1"):
            stage.client(name, "phb1", lambda client, name=name: self._open(client, name))  # type: ignore[misc]
        for shb in SHBS:
            self._clients[shb] = stage.client(f"at-{shb}", shb, lambda _: None)

    def begin(self) -> None:
        """Values come one after another."""
        self.world.observe.add(self)
        for number in range(self.values):
            self.world.after(number * EVERY, "world", "value", self._value, number)

    # What is begun and published.

    def _open(self, client: SimClient, name: str) -> None:
        self._producers.append(Producer(client, Outbox(name, TOPIC)))

    def _value(self, number: int) -> None:
        value = Value(number)
        for at in PUBLISHED_AT:
            self.world.after(at, "world", "publish", self._publish, value)
        for place, shb in enumerate(SHBS):
            wait = LATER[(number + place) % len(LATER)] * MILLISECOND
            self.world.after(wait, "world", "subscribe", self._subscribe, shb, value)

    def _publish(self, value: Value) -> None:
        publication = Publication(self._stage.new_key(), TOPIC, {"w": value.number})
        self._stage.publications[publication.key] = publication
        self._by_key[publication.key] = value
        producer = self._producers[publication.key % len(self._producers)]
        producer.outbox.publications.append(publication)
        producer.publish(1)

    def _subscribe(self, shb: str, value: Value) -> None:
        client, number = self._clients[shb], value.number
        row = Row(
            len(SHBS) * number + SHBS.index(shb) + 1,
            client.name,
            f"w{number}",
            (TOPIC,),
            f"w = {number}",
            lambda logged: bool(logged.publication.properties["w"] == number),
        )
        newcomer = self._by_row[row.number] = Newcomer(row, value, self.world.now)
        newcomer.consumer = Consumer(client, row, row.wanted())
        self.world.after(SECOND // 2, "world", "look", self._look, newcomer)

    def _look(self, newcomer: Newcomer) -> None:
        missing = newcomer.missing()
        waited = self.world.now - newcomer.begun_at
        given_up = waited > PATIENCE
        if missing != set() and not given_up:
            self.world.after(LOOK, "world", "look", self._look, newcomer)
            return
        if missing is None:
            raise AssertionError(f"{newcomer.row.name} was not begun, or its events have no receipts")
        self.done += 1
        self.lost += len(missing)
        self.losers += bool(missing)
        self.twice += newcomer.twice
        self.owed += len(missing | newcomer.got)
        self.late += bool(newcomer.got)
        self.slow += waited > SLOW
        self._end(newcomer)

    def _end(self, newcomer: Newcomer) -> None:
        consumer, row = newcomer.consumer, newcomer.row
        assert consumer is not None
        consumer.leave()
        self.world.observe.unsubscribing(row)
        client = consumer.client
        assert row.name is not None
        number = client.core.unsubscribe(row.name, row.client_id, client.monotonic())
        client.ask(number, lambda _: self._ended(row), _unexpected)
        del self._by_row[row.number]

    def _ended(self, row: Row) -> None:
        row.ended = True
        self.world.observe.unsubscribed(row)

    # What is seen.

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        newcomer = self._by_row.get(consumer.row.number)
        if newcomer is not None and newcomer.begins is None:
            newcomer.begins = dict(begins)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        newcomer = self._by_row.get(consumer.row.number)
        if newcomer is not None and isinstance(item, Delivery):
            for event in item.events():
                key = key_of(event.body)
                newcomer.twice += key in newcomer.got
                newcomer.got.add(key)

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        value = self._by_key.pop(publication.key, None)
        if value is not None:
            value.receipts[publication.key] = pubend, tick


def _unexpected(error: Exception) -> None:
    raise error


def race(subscriptions: int, *, judged: bool) -> Race:
    """So many subscriptions, and what became of them; oracles look on, or the race alone counts."""
    races: list[Race] = []

    def prepare(stage: Stage) -> None:
        races.append(Race(stage, subscriptions))

    def act(stage: Stage) -> None:
        running = races[0]
        stage.wait(6)  # a census: from now on the network filters
        running.begin()
        restarted = 0
        while running.done < running.values * len(SHBS):
            name = IBS[restarted % len(IBS)]
            stage.crash(name)
            stage.wait(DOWN)
            stage.boot(name)
            stage.wait(RESTART_EVERY - DOWN)
            restarted += 1

    play(Setup(CELLS, link=LINK, pubends=2, judged=judged), prepare, act)
    return races[0]


@contextmanager
def without_stamps() -> Iterator[None]:
    """Whatever is filtered says that nothing was."""
    decide: Callable[..., Decision] = InterestByDirection.decide

    def unstamped(self: InterestByDirection, *arguments: Any) -> Decision:
        return decide(self, *arguments)._replace(stamp=RAW)

    with patch.object(InterestByDirection, "decide", unstamped):
        yield


def _play(sizes: Sizes) -> Mapping[str, float]:
    true = race(sizes.count(SUBSCRIPTIONS, 120), judged=sizes.quick)
    with without_stamps():
        false = race(sizes.count(WITHOUT_STAMPS, 120), judged=False)
    return {
        "subscriptions": true.done,
        "subscriptions_with_events": true.late,
        "events_owed": true.owed,
        "events_lost": true.lost,
        "events_twice": true.twice,
        "subscriptions_slow": true.slow,
        "subscriptions_without_stamps": false.done,
        "events_owed_without_stamps": false.owed,
        "events_lost_without_stamps": false.lost,
        "subscriptions_that_lose_without_stamps": false.losers,
    }


PROOF = Proof(
    "race: new subscriptions under publishing and restarts of IBs",
    "1 PHB with 2 pubends, a cell of two IBs, two cells of two below it, 2 SHBs at each; each link takes 3 ms. 200 new "
    "subscriptions a second, to values that nobody wanted before, while 400 events/s of just these are published; "
    "every 2 s another IB is down for 0.4 s.",
    {
        "subscriptions": Figure("subscriptions"),
        "subscriptions_with_events": Figure("of them so many began before the last event of their value"),
        "events_owed": Figure("events that they were owed", bar=Bar(least=1)),
        "events_lost": Figure("events that they lost", bar=Bar(0, 0)),
        "events_twice": Figure("events that they were handed twice", bar=Bar(0, 0)),
        "subscriptions_slow": Figure(
            f"subscriptions that had not got all {SLOW // SECOND} s after they were begun", bar=Bar(0, 0)
        ),
        "subscriptions_without_stamps": Figure("without stamps: subscriptions"),
        "events_owed_without_stamps": Figure("without stamps: events that they were owed"),
        "events_lost_without_stamps": Figure("without stamps: events that they lost", bar=Bar(least=1)),
        "subscriptions_that_lose_without_stamps": Figure("without stamps: subscriptions that lost events"),
    },
    _play,
)


def run(*, json: bool, quick: bool) -> dict[str, object]:
    """All of it."""
    return PROOF.run(json=json, quick=quick)

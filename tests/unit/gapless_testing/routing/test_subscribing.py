"""The stand-in for an SHB keeps the promises of a real one, and asks until it is answered."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import (
    AskInterest,
    Held,
    Hold,
    Interest,
    Know,
    Opened,
    Probe,
    Progress,
    PubendMeta,
    Seen,
    Want,
)
from gapless.core.network.seam import Effect
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW, Stamp
from gapless.core.stream.ticks import FOREVER
from gapless.selectors.filters import Filter
from gapless_testing.routing import PAIR, Clause
from gapless_testing.routing.faults import MS
from gapless_testing.routing.network import BrokerHost, VirtualNetwork
from gapless_testing.routing.subscribing import Following, SubscribingStandIn
from unit.gapless_testing.routing.scripted import ScriptedHarness, router
from unit.gapless_testing.routing.seam import FISH, MEAT, PUBEND, breaks, events

META = PubendMeta(PUBEND, "p")


class Shb:
    """A stand-in at broker s of a network of scripted routers."""

    def __init__(self) -> None:
        self.network = VirtualNetwork(ScriptedHarness(), PAIR, 1)
        self.network.contract.informed("p", 0, Opened(META, {}))
        self.host: BrokerHost = self.network.hosts["s"]
        self.shb = SubscribingStandIn(self.host, "shb")
        self.shb.filters = {1: FISH}
        self.host.stand_ins.append(self.shb)
        self.network.start()
        self.run(20)

    def run(self, ms: int) -> None:
        self.network.run(ms * MS)

    def called(self, method: str) -> list[Any]:
        return [arguments[0] for arguments in router(self.network, "s").called(method)]

    def attend(self, effect: Effect) -> None:
        self.shb.attend(effect)

    def deliver(self, lo: int, hi: int, data: EventBatch = EMPTY, *, lost: int = 0, stamp: Stamp = RAW) -> None:
        self.attend(Know(Knowledge(PUBEND, lo, hi, data, lost, stamp)))

    @property
    def following(self) -> Following:
        return self.shb.streams[PUBEND]

    def wants(self) -> list[Want]:
        return self.called("want")


@pytest.fixture
def shb() -> Shb:
    """It follows a pubend from 100 on."""
    made = Shb()
    made.attend(Seen(META, 100))
    return made


def test_it_says_its_whole_interest_first(shb: Shb) -> None:
    assert shb.called("interest") == [Interest("shb", 0, 1, {1: FISH}, full=True)]


def test_a_change_is_said_when_it_is_durable(shb: Shb) -> None:
    shb.shb.change(lambda filters: filters.update({2: MEAT}))
    shb.shb.change(lambda filters: filters.clear())
    assert len(shb.called("interest")) == 1
    shb.run(20)
    shb.shb.change(_drop_the_first)
    shb.run(20)

    assert shb.called("interest")[1:] == [
        Interest("shb", 1, 2, {2: MEAT}),
        Interest("shb", 2, 3, {}, frozenset({1})),
    ]


def test_it_repeats_its_version_and_answers_when_it_is_asked(shb: Shb) -> None:
    shb.run(5000)
    assert shb.called("interest")[1:] == [Interest("shb", 1, 1, {})]
    shb.attend(AskInterest())
    shb.run(1)

    assert shb.called("interest")[2:] == [Interest("shb", 0, 1, {1: FISH}, full=True)]


def test_it_follows_only_who_counts_it(shb: Shb) -> None:
    shb.attend(Seen(PubendMeta("q@1", "q")))
    assert list(shb.shb.streams) == [PUBEND]
    assert list(shb.shb.seen) == [PUBEND]


def test_it_takes_knowledge_in_any_order(shb: Shb) -> None:
    shb.deliver(150, 200, events(160, 170))
    assert shb.following.head == 100
    shb.deliver(0, 150, events(110))
    shb.deliver(120, 170, events(160, 170))

    assert (shb.following.head, shb.following.received) == (200, [110, 160, 170])


def test_it_takes_what_matches(shb: Shb) -> None:
    shb.deliver(100, 200, EventBatch.concatenate([events(110), events(120, topic="meat")]))

    assert shb.following.received == [110]


def test_it_asks_for_a_hole_until_it_is_filled(shb: Shb) -> None:
    shb.deliver(150, 200)
    shb.run(3000)
    wants = shb.wants()
    assert wants[0] == Want(PUBEND, ((100, 150),), {"shb": 1}, "shb", again=False)
    assert len(wants) > 1

    shb.deliver(100, 150, stamp={"shb": 1})
    shb.run(1000)
    assert shb.following.head == 200
    assert len(shb.wants()) == len(wants)


def test_it_refuses_silence_that_was_filtered_by_an_older_interest(shb: Shb) -> None:
    shb.shb.change(lambda filters: filters.update({2: MEAT}))
    shb.run(20)
    shb.deliver(100, 150, events(120), stamp={"shb": 1})
    shb.run(1000)

    assert shb.following.head == 100
    assert shb.wants()[0].need == {"shb": 2}
    shb.deliver(100, 150, EventBatch.concatenate([events(120), events(130, topic="meat")]))
    assert shb.following.received == [120, 130]
    assert [shb.shb.version_at(shb.following, tick) for tick in (100, 101, 130)] == [0, 2, 2]


def test_it_asks_ahead_when_nothing_comes(shb: Shb) -> None:
    shb.run(4000)

    assert shb.wants()[-1].ranges == ((100, FOREVER),)


def test_it_does_not_ask_when_it_may_not(shb: Shb) -> None:
    shb.shb.asks = False
    shb.deliver(150, 200)
    shb.run(10000)

    assert shb.wants() == []


def test_what_a_pubend_and_a_probe_say_to_exist_is_asked_for(shb: Shb) -> None:
    shb.attend(Probe(PUBEND, 130))
    shb.run(1000)
    shb.attend(Seen(PubendMeta(PUBEND, "p", stable=150), 100))
    shb.run(1000)

    assert shb.following.probed == 130
    assert shb.wants()[0].ranges == ((100, 130),)
    assert shb.wants()[-1].ranges[-1][1] == 150


def test_it_reports_what_is_durable(shb: Shb) -> None:
    shb.deliver(100, 200)
    shb.run(400)
    (progress,) = shb.called("progress")

    assert isinstance(progress, Progress)
    assert (progress.delivered, shb.following.delivered) == (200, 200)
    assert progress.released <= 200
    shb.run(4000)
    assert len(shb.called("progress")) > 1


def test_a_crash_takes_it_back_to_what_is_durable(shb: Shb) -> None:
    shb.deliver(100, 200, events(150))
    shb.run(400)
    shb.deliver(200, 300, events(250))
    shb.shb.read(shb.following, 100)
    assert shb.following.received == [150, 250]
    shb.host.crash()
    shb.host.start()
    shb.run(20)

    assert (shb.following.head, shb.following.received, shb.following.readings) == (200, [150], [])
    assert shb.called("interest") == [Interest("shb", 0, 2, {1: FISH}, full=True)]
    assert shb.shb.version_at(shb.following, 201) == 2


def test_events_that_were_given_up_too_soon(shb: Shb) -> None:
    with breaks(Clause.MINIMA, "gave up"):
        shb.deliver(100, 200, lost=150)


def test_it_reads_again_unfiltered(shb: Shb) -> None:
    shb.deliver(100, 200, events(150))
    shb.shb.read(shb.following, 1000)
    shb.run(200)
    assert shb.wants() == [Want(PUBEND, ((100, 200),), RAW, "shb", again=False)]

    shb.deliver(100, 150, events(150), stamp={"shb": 1})
    shb.deliver(150, 200, stamp={"shb": 1})
    assert len(shb.following.readings) == 1
    shb.deliver(100, 140, lost=140)
    shb.deliver(140, 200, events(150))
    assert shb.following.readings == []


def test_it_repeats_a_hold_until_it_is_held(shb: Shb) -> None:
    shb.shb.hold(shb.following)
    row = Hold("shb", PUBEND, 1, {1: 100})
    shb.run(5500)
    assert shb.called("hold") == [row, row]
    shb.attend(Held("shb", PUBEND, 1, {1: 100}))
    shb.run(6000)

    assert (shb.called("hold"), shb.following.held) == ([row, row], 1)


def test_a_router_that_is_new_is_told_the_whole_interest(shb: Shb) -> None:
    shb.host.vanish()

    assert shb.called("interest") == [Interest("shb", 0, 1, {1: FISH}, full=True)]


def _drop_the_first(filters: dict[int, Filter]) -> None:
    del filters[1]

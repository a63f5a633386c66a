"""A seam without routers, for tests that say themselves what is called and what comes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from gapless.core.network.facts import FrameArrived, Interest, Know, Opened, Progress, PubendMeta, Released
from gapless.core.network.seam import Effect, Told
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import Stamp
from gapless.core.stream.ticks import ShbId, Tick
from gapless.selectors.filters import Filter
from gapless_testing.routing import Clause, Contract, ContractError
from gapless_testing.routing.clients import columns

PUBEND = "p@1"
FISH = Filter(("fish",))
MEAT = Filter(("meat",))


def events(*ticks: Tick, topic: str = "fish") -> EventBatch:
    """Events of one topic at these ticks; n is the tick."""
    if not ticks:
        return EMPTY
    encoded = [columns(topic, tick, 1).batch([tick]) for tick in ticks]
    return EventBatch.concatenate(encoded)


def known(lo: Tick, hi: Tick, data: EventBatch = EMPTY, lost: Tick = 0, stamp: Stamp = None) -> Knowledge:
    return Knowledge(PUBEND, lo, hi, data, lost, stamp)


def full(shb: ShbId, version: int, *filters: Filter) -> Interest:
    return Interest(shb, 0, version, dict(enumerate(filters)), full=True)


class Seam:
    """A pubend at broker "p", SHBs "s" and "t" at brokers of their names, and who looks on."""

    def __init__(self) -> None:
        self.contract = Contract()
        self.now = 0

    def call(self, broker: str, fact: Told) -> None:
        self.now += 1
        self.contract.informed(broker, self.now, fact)

    def say(self, broker: str, effect: Effect) -> None:
        self.contract.said(broker, self.now, effect)

    def open(self, members: Mapping[ShbId, Tick], stable: Tick = 0) -> PubendMeta:
        meta = PubendMeta(PUBEND, "p", stable=stable)
        self.call("p", Opened(meta, members))
        return meta

    def know(self, *arguments: Any, **more: Any) -> None:
        self.call("p", Know(known(*arguments, **more), None))

    def deliver(self, broker: str, *arguments: Any, **more: Any) -> None:
        self.say(broker, Know(known(*arguments, **more)))

    def report(self, shb: ShbId, released: Tick, delivered: Tick, *, arrives: bool = True) -> None:
        self.call(shb, Progress(shb, PUBEND, released, delivered))
        if arrives:
            self.call("p", FrameArrived(1, b"progress", 0))

    def release(self, released: Tick, delivered: Tick) -> None:
        self.say("p", Released(PUBEND, released, delivered))


@contextmanager
def breaks(clause: Clause, words: str | None = None) -> Iterator[None]:
    """The block breaks this clause, and no other."""
    with pytest.raises(ContractError, match=words) as breach:
        yield
    assert breach.value.clause is clause

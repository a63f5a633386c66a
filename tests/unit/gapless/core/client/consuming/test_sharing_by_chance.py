"""A consumer of a shared subscription, to which everything happens that may, in any order."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from gapless.core.client import SubscribeOptions
from gapless.core.client.consuming.held import HeldDelivery, HeldEvent
from gapless.core.client.link import effects as e
from gapless.core.wire import messages as m
from unit.gapless.client.sharing_broker import SharingBroker
from unit.gapless.core.client.harness import World

ACKNOWLEDGE, RETRY = m.Kind.ACKNOWLEDGE, m.Kind.RETRY


class Chance:
    """A consumer at a broker that shares, and everything that may happen to it, as chance has it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.broker = SharingBroker(pubends=("p@1", "q@1"))
        self.world = World(self.broker, seed=seed).start()
        sharing = m.Sharing(window=4096, durable=True)
        wanted = SubscribeOptions(("#",), "workers", sharing=sharing, window_events=6)
        self.number = self.world.core.subscribe(wanted, self.world.now)
        self.world.pump()
        self.in_hand: dict[int, HeldEvent] = {}
        self.handed: Counter[tuple[str, int]] = Counter()
        self.said: dict[int, dict[int, tuple[m.Kind, tuple[str, int]]]] = {}
        """By the settlement and the delivery number."""
        self.logged: set[tuple[str, int]] = set()
        self.answered: dict[int, frozenset[int]] = {}

    def step(self) -> None:
        acts = {self.log: 3, self.take: 12, self.settle: 8, self.cut: 1, self.lose: 1, self.let_go: 1, self.slow: 1}
        self.random.choices(list(acts), list(acts.values()))[0]()
        if self.random.random() < 0.8:
            self.world.pump()
        self.judge()

    def log(self) -> None:
        pubend = self.random.choice(("p@1", "q@1"))
        bodies = [b"x"] * self.random.randrange(1, 5)
        self.logged.update((pubend, tick) for tick in self.broker.log(*bodies, pubend=pubend))

    def take(self) -> None:
        events_max = self.random.choice((1, 1, 3, 64))
        item = self.world.core.take_held(self.number, self.world.now, events_max, events_max)
        if item is None:
            return
        assert isinstance(item, HeldDelivery)
        for event in item.events():
            place = event.pubend, event.tick
            assert event.redelivered >= (place in self.handed), "it comes again unmarked"
            assert (event.pubend, event.tick) not in self.acknowledged, "it comes again after it was acknowledged"
            self.handed[place] += 1
            self.in_hand[event.delivery_number] = event

    def settle(self) -> None:
        some = self.random.sample(list(self.in_hand), min(len(self.in_hand), self.random.randrange(1, 4)))
        kind = self.random.choice((ACKNOWLEDGE, ACKNOWLEDGE, RETRY))
        places = {number: (self.in_hand[number].pubend, self.in_hand.pop(number).tick) for number in some}
        settlements, lost = self.world.core.settle(self.number, kind, some, self.world.now)
        for number in settlements:
            verdicts = self.said.setdefault(number, {})
            verdicts.update((each, (kind, places[each])) for each in some if each not in lost)

    def cut(self) -> None:
        if self.world.links:
            self.world.cut()
        if self.random.random() < 0.5:
            self.let_go()
        self.world.advance(self.random.choice((0.01, 30)))

    def lose(self) -> None:
        held = self.broker.held()
        if held and self.broker.only.consumers:
            self.broker.lose_holds(*self.random.sample(held, 1))

    def let_go(self) -> None:
        self.broker.let_go()
        self.broker.delays_end()

    def slow(self) -> None:
        if self.broker.slow is None:
            self.broker.slow = []
        else:
            self.broker.hurry()

    @property
    def acknowledged(self) -> set[tuple[str, int]]:
        """What an answer said is settled."""
        return {
            place
            for settlement, lost in self.answered.items()
            for number, (kind, place) in self.said[settlement].items()
            if kind is ACKNOWLEDGE and number not in lost
        }

    def judge(self) -> None:
        for each in self.world.effects(e.SettlementAnswered):
            if each.number in self.said:
                self.answered[each.number] = frozenset(each.lost)
        settled = self.broker.only.settled
        assert len(set(settled)) == len(settled)
        assert self.acknowledged <= set(settled)
        assert not self.world.failure(self.number)

    def end(self) -> None:
        """Everything comes to its end: all is acknowledged, and every verdict is answered."""
        self.broker.hurry()
        for _ in range(1000):
            self.world.advance(30)
            self.let_go()
            self.take()
            self.random.shuffle(order := list(self.in_hand))
            for number in order:
                self.world.core.settle(self.number, ACKNOWLEDGE, [number], self.world.now)
                del self.in_hand[number]
            self.world.pump()
            self.judge()
            if not self.broker.only.entries and set(self.said) == set(self.answered):
                return
        raise AssertionError(f"{len(self.broker.only.entries)} are not settled")


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_nothing_is_lost_and_nothing_comes_again_unmarked(seed: int) -> None:
    chance = Chance(seed)
    for _ in range(150):
        chance.step()
    chance.end()
    assert set(chance.broker.only.settled) == chance.logged

"""J2 and J4: what was committed does not come again, and each event takes effect in exactly one transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.client.transacting import Fate
from gapless_sim.oracles.transactions import J2Committed, J4Once
from gapless_sim.world.producer import Publication
from gapless_sim.world.transactions import Input, Transaction
from unit.gapless_sim.oracles.model_fixture import ModelFixture, P, violates


class Stage:
    """Three events of one row, and a session that has the subscription."""

    def __init__(self) -> None:
        self.fixture = ModelFixture(J2Committed, J4Once)
        self.fixture.log((10, 1), (20, 2), (30, 3))
        once: Any = self.fixture.oracles[J4Once]
        once.model.alive = lambda _: True
        self.reached = True
        once._reach = SimpleNamespace(is_served=lambda _: self.reached)
        row: Any = SimpleNamespace(name="input-1", number=1, owner=None)
        core = SimpleNamespace(connected=True)
        consumer: Any = Input.__new__(Input)
        consumer.client = SimpleNamespace(name="c", core=core)
        consumer.row, consumer.number, consumer.over = row, 1, False
        consumer.session = SimpleNamespace(is_clean=True)
        self.consumer = row.owner = consumer
        self.number = 0

    def takes(self, *events: tuple[int, int]) -> None:
        self.fixture.hand_out(self.consumer, *events)

    def transaction(self, fate: Fate, *ticks: int, outputs: tuple[int, ...] = (), row: int = 1) -> Transaction:
        """A transaction with events of a row, and outputs with these keys."""
        self.number += 1
        consumed: Any = {row: {(P, tick): None for tick in ticks}} if ticks else {}
        made = tuple(Publication(key, "out", {}) for key in outputs)
        transaction = Transaction(self.number, consumed, made, fate, sent=True)
        self.fixture.observe.transacting(transaction)
        if fate is not Fate.OPEN:
            self.fixture.observe.transacted(transaction)
        return transaction

    def log_outputs(self, *keys: int) -> None:
        self.fixture.say(0, 100, *((10 * place, key) for place, key in enumerate(keys, 1)), pubend="out@1")

    def end(self) -> None:
        self.fixture.oracles[J4Once].ended()


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.takes((10, 1), (20, 2), (30, 3))
    return stage


def test_one_that_took_effect_in_part_is_found(stage: Stage) -> None:
    stage.transaction(Fate.OPEN, 10, 20)
    stage.transaction(Fate.COMMITTED, 20, 30)

    with violates("J4"):
        stage.end()


@pytest.mark.parametrize(
    ("fate", "logged"),
    [(Fate.COMMITTED, ()), (Fate.COMMITTED, (7,)), (Fate.ROLLED_BACK, (7, 8))],
    ids=["committed without outputs", "half of them", "rolled back with outputs"],
)
def test_outputs_are_all_there_or_none(stage: Stage, fate: Fate, logged: tuple[int, ...]) -> None:
    if logged:
        stage.log_outputs(*logged)
    stage.transaction(fate, 10, 20, 30, outputs=(7, 8))

    with violates("J4"):
        stage.end()

"""J3: what a transform has published is what follows from its input, each once, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.client import Gap
from gapless.core.ports import Set
from gapless.core.wire.messages import GapReason
from gapless.core.wire.tokens import CheckpointToken
from gapless_phb.core import rows
from gapless_sim.oracles.transforms import J3Transforms
from gapless_sim.world.producer import Outbox
from gapless_sim.world.transform import InputConsumer, Recipe, Transform
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates

OUT = "out@1"
ONE, TWO, NONE = 1, 5, 3
"""Keys of inputs of which so many outputs are made."""


class Process:
    """A process that runs the one recipe."""

    def __init__(self, fixture: ModelFixture, recipe: Recipe, name: str = "c") -> None:
        self.fixture = fixture
        self.transform: Any = Transform.__new__(Transform)
        self.transform.recipe, self.transform.name = recipe, recipe.outbox.name
        client: Any = SimpleNamespace(name=name)
        self.transform.client = client
        self.consumer: Any = InputConsumer.__new__(InputConsumer)
        self.consumer.transform, self.consumer.row = self.transform, recipe.row
        self.consumer.client = client
        self.consumer.number = 1
        fixture.observe.ready(self.transform, 0)

    def takes(self, *events: tuple[int, int]) -> None:
        self.fixture.hand_out(self.consumer, *events)

    def stores(self, tick: int) -> None:
        """The pubend has its position, and it is told."""
        token = CheckpointToken("net", {P: tick}, 1, 1)
        row = rows.PublisherRow(1, "i", 1, 0, 0, 0, b"", (), (str(token),))
        write = Set("phb.publishers", rows.key(0, self.transform.name), rows.encode(row))
        self.fixture.oracles[J3Transforms].written(SimpleNamespace(), [write])  # type: ignore[arg-type]
        self.told(tick)

    def told(self, tick: int) -> None:
        self.fixture.observe.stored(self.transform, CheckpointToken("net", {P: tick}, 1, 1))


def recipe() -> Recipe:
    row: Any = SimpleNamespace(name="transform-1", number=1)
    return Recipe(1, row, Outbox("transform-1", "out", common=True))


def made(key: int) -> list[int]:
    return [output.key for output in recipe().outputs(key)]


def stage(*logged: int) -> tuple[ModelFixture, Process]:
    """Three inputs were taken, and these outputs are logged."""
    fixture = ModelFixture(J3Transforms)
    fixture.log((10, ONE), (20, TWO), (30, NONE))
    process = Process(fixture, recipe())
    process.takes((10, ONE), (20, TWO), (30, NONE))
    if logged:
        fixture.say(0, 100, *((10 * place, key) for place, key in enumerate(logged, 1)), pubend=OUT)
    return fixture, process


def counted(tick: int) -> tuple[ModelFixture, Process]:
    """The pubend keeps everything for the broker from a tick on."""
    fixture, process = stage()
    account: Any = SimpleNamespace(shb=SHB)
    fixture.model.accounts[process.consumer.row.number] = account
    fixture.model.members[P] = {SHB: tick}
    return fixture, process


def test_who_owns_the_name_meets_no_gap() -> None:
    fixture, process = counted(0)
    gap = Gap(P, 30, 40, GapReason.RELEASED_EARLY.value)
    found_later = Gap("other@1", 0, 40, GapReason.RELEASED_EARLY.value)
    fixture.oracles[J3Transforms].handed_out(process.consumer, found_later)
    with violates("J3"):
        fixture.oracles[J3Transforms].handed_out(process.consumer, gap)
    Process(fixture, process.transform.recipe, "rival")

    fixture.oracles[J3Transforms].handed_out(process.consumer, gap)


def test_what_a_pubend_let_go_of_before_it_counted_the_broker_is_a_gap() -> None:
    """However far an owner was told that it stands there (delta 100440)."""
    fixture, process = counted(40)
    gap = Gap(P, 30, 40, GapReason.RELEASED_EARLY.value)
    fixture.oracles[J3Transforms].handed_out(process.consumer, gap)

    with violates("J3"):
        fixture.oracles[J3Transforms].handed_out(process.consumer, Gap(P, 40, 50, GapReason.RELEASED_EARLY.value))


@pytest.mark.parametrize(
    ("lost", "lives", "reached", "settled"),
    [
        (True, True, True, False),
        (False, True, True, True),
        (True, False, True, True),
        (True, True, False, True),
    ],
)
def test_an_owner_takes_its_input_back(*, lost: bool, lives: bool, reached: bool, settled: bool) -> None:
    fixture, process = stage()
    fixture.opens()
    fixture.attach(fixture.row())
    client = SimpleNamespace(name="client1", running=lives)
    process.consumer.client = process.transform.client = client
    process.consumer.over = lost
    process.transform.consumer, process.transform.over = process.consumer, False
    process.transform.life = SimpleNamespace(over=False)
    fixture.world.brokers[NODE].given_up = not reached

    oracle = fixture.oracles[J3Transforms]
    assert oracle.settled() is settled
    assert bool(oracle.unsettled()) is not settled

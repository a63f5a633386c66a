"""One run: safety, then liveness; what is found is named, and what is broken in the code is told apart."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from gapless_sim.oracles.liveness import V1LiveDelivery
from gapless_sim.recording.observation import Oracle, Violation
from gapless_sim.search import run
from gapless_sim.search.run import run_seed, undisturbed
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.world import World

GENTLE = Options(1, duration=3 * SECOND)


class Spoilsport(Oracle):
    """Finds fault at a chosen moment."""

    moment = "liveness_begins"

    def liveness_begins(self) -> None:
        if self.moment == "liveness_begins":
            raise Violation("I99", "too quiet")

    def checkpoint(self) -> None:
        if self.moment == "bug":
            raise KeyError("a bug")

    def settled(self) -> bool:
        return self.moment != "stuck"

    def unsettled(self) -> str:
        return "it does not come right"


def with_oracle(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    def oracles(world: World) -> list[Oracle]:
        spoilsport = Spoilsport(world)
        spoilsport.moment = moment
        return [spoilsport]

    monkeypatch.setattr(run, "all_oracles", oracles)


def test_the_same_options_make_the_same_run_and_so_do_its_choice_sequences() -> None:
    options = replace(GENTLE, process=replace(GENTLE.process, crash=1.0, client_crash=1.0))
    first = run_seed(options)

    assert run_seed(options).digest == first.digest
    assert run_seed(options, first.choice_sequences).digest == first.digest


def test_what_people_read_does_not_change_the_run() -> None:
    quiet, told = run_seed(GENTLE), run_seed(GENTLE, keep=True)

    assert quiet.digest == told.digest
    assert told.lines
    assert not quiet.lines


@pytest.mark.parametrize(
    ("moment", "oracle"), [("liveness_begins", "I99"), ("stuck", "Spoilsport"), ("bug", "exception KeyError")]
)
def test_what_is_found_is_named(monkeypatch: pytest.MonkeyPatch, moment: str, oracle: str) -> None:
    monkeypatch.setattr(run, "RECOVERY_LIMIT", 3 * SECOND)
    with_oracle(monkeypatch, moment)
    violation = run_seed(GENTLE).violation

    assert violation is not None
    assert violation.oracle == oracle


def test_garbage_is_collected_again_afterwards() -> None:
    with undisturbed():
        assert not gc.isenabled()
    assert gc.isenabled()


class Slow(V1LiveDelivery):
    """Something comes now and then, and at last all has."""

    def __init__(self, world: Any, *moments: int) -> None:
        self.clock, self.moments = world, moments

    def settled(self) -> bool:
        return bool(self.moments) and self.clock.now >= self.moments[-1] * SECOND

    def unsettled(self) -> str:
        return f"{sum(self.clock.now >= moment * SECOND for moment in self.moments)} have come"


@pytest.mark.parametrize(
    ("moments", "ended"),
    [
        ((100,), 100),
        ((), 270),  # nothing has ever come: it is looked once more, and that is all
        ((250, 280, 300), 300),
        ((250, 290, 500), 300 + 30),
        (tuple(range(250, 2000, 20)), 240 * 5),
    ],
)
def test_what_comes_slowly_is_waited_for_as_long_as_something_comes(moments: tuple[int, ...], ended: int) -> None:
    world: Any = SimpleNamespace(now=0, is_too_long=False)
    world.run_until = partial(setattr, world, "now")
    world.observe = SimpleNamespace(oracles=[Slow(world, *moments)])
    is_found = bool(moments) and moments[-1] == ended
    with nullcontext() if is_found else pytest.raises(Violation, match="have come"):
        run.wait_until_settled(world)

    assert world.now == ended * SECOND

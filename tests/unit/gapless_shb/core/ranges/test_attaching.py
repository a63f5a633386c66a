"""Creating a subscription without consuming it: answered when it is durable, and as often as one likes."""

from __future__ import annotations

from typing import Any

from gapless.core.wire import messages as m
from unit.gapless_shb.core.harness import PUBEND
from unit.gapless_shb.core.ranges.harness import NAME, RangeWorld
from unit.gapless_shb.core.ranges.test_acknowledging import attached


def attach(selector: str = "", **changes: Any) -> m.Attach:
    """A request to attach."""
    values: dict[str, Any] = {"request": 900, "name": NAME, "topics": ("#",), "selector": selector}
    values |= {
        "start": m.StartAt.LATEST,
        "start_wall": 0,
        "positions": None,
        "token_sid": 0,
        "token_generation": 0,
        "token_seal": b"",
    }
    return m.Attach(**{**values, **changes})


def test_attaching_is_answered_when_it_is_durable() -> None:
    world = RangeWorld(selector="").calm()
    world.define()
    before = world.attached
    assert before is None
    world.sync()
    assert world.attached is not None
    assert [position.pubend for position in world.attached.positions] == [PUBEND]

    world.crash()
    assert world.hosting.registry.find("c", NAME) is not None


def test_attaching_again_finds_it_where_it_is_acknowledged() -> None:
    world = attached()
    sid = world.attached.sid if world.attached else 0
    world.acknowledge(world.log[4][0])
    world.define(m.StartAt.EARLIEST)

    assert world.attached is not None
    assert world.attached.sid == sid
    assert world.attached.positions == [m.Position(PUBEND, world.log[4][0])]


def test_a_token_sets_the_position_that_is_answered() -> None:
    world = attached()
    old = world.attached
    assert old is not None
    at = [m.Position(PUBEND, world.log[2][0])]
    world.say(attach(start=m.StartAt.TOKEN, positions=at, token_sid=1, token_generation=1, token_seal=old.seal))

    assert world.attached is not None
    assert world.attached.positions == at


def test_another_selector_is_refused() -> None:
    world = attached()

    assert world.ask(attach("w = 7")).code is m.Code.MISMATCH
    assert world.ask(attach("w = ", request=901)).code is m.Code.INVALID_SELECTOR
    assert world.ask(attach("w" * 16_385, request=902)).code is m.Code.INVALID_SELECTOR


def test_who_went_away_before_it_was_created_finds_it_created() -> None:
    world = RangeWorld(selector="").calm()
    world.define()
    world.new_session()
    world.define()
    world.calm()

    assert world.attached is not None
    assert len(world.hosting.registry) == 1


def test_one_that_was_being_created_when_the_broker_crashed_is_created() -> None:
    """With a start in the past a pubend has to be asked first."""
    world = RangeWorld(selector="").calm(5)
    world.define(m.StartAt.EARLIEST)
    world.sync()
    if world.attached is None:
        world.crash()
        world.calm()
        world.define(m.StartAt.EARLIEST)
    world.calm()

    assert world.attached is not None
    world.take(world.start, world.stable)

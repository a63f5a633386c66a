"""Touches of attributes are counted, and change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gapless_sim.recording.access_tracking import watch, watch_world
from gapless_sim.recording.trace import Trace
from gapless_sim.search.scopes import SCOPES
from gapless_sim.world.choices import Choices
from gapless_sim.world.world_builder import build


class Plain:
    def __init__(self) -> None:
        self.fuse = 3
        self.other = 4


@dataclass(slots=True)
class Slotted:
    sync: str = "kept"


def test_an_attribute_of_an_object_is_counted() -> None:
    plain, accesses = Plain(), Counter[str]()
    watch(plain, ("fuse",), accesses, "a")
    plain.fuse -= 1

    assert plain.fuse == 2
    assert plain.other == 4
    assert accesses == {"a fuse": 3}
    assert isinstance(plain, Plain)


def test_an_attribute_in_a_slot_is_counted() -> None:
    slotted, accesses = Slotted(), Counter[str]()
    watch(slotted, ("sync",), accesses, "a")
    slotted.sync = "lost"

    assert slotted.sync == "lost"
    assert accesses == {"a sync": 2}


def test_other_objects_of_the_class_are_not_counted() -> None:
    accesses = Counter[str]()
    watch(Plain(), ("fuse",), accesses, "a")

    assert Plain().fuse == 3
    assert not accesses


def test_in_a_world_every_broker_is_watched_for_itself() -> None:
    world = build(SCOPES[3].options(), Choices(0, {}), Trace())
    accesses = watch_world(world)
    broker = world.brokers["phb1"]
    broker.boot()
    world.run_until(0)

    assert all(accesses[f"phb1 {name}"] for name in ("fuse", "paused_until", "sync", "write"))
    assert not any(key.startswith("phb2") for key in accesses)


def test_whoever_asks_whether_a_way_is_cut_is_counted() -> None:
    world = build(SCOPES[3].options(), Choices(0, {}), Trace())
    accesses = watch_world(world)
    world.network.cut("phb1", "shb1")

    assert world.network.is_cut("phb1", "shb1")
    assert not world.network.is_cut("shb1", "phb1")
    assert accesses == {"phb1 sends": 1, "shb1 hears": 1, "shb1 sends": 1, "phb1 hears": 1}

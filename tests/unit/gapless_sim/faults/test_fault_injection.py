"""What the faults of small scopes do, to whom, and where they do the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gapless_sim.faults.fault_injection import FAULTS, InjectionContext, Mark
from gapless_sim.recording.access_tracking import watch_world
from gapless_sim.recording.trace import Trace
from gapless_sim.search.scopes import SCOPES, Script, scope_named
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import SECOND
from gapless_sim.world.world_builder import build

SMALLEST, LARGER = SCOPES[0], scope_named("2/2/1/2")
TRAPS = ("crash-at-effect-1", "crash-at-effect-2", "sync-kept", "sync-lost", "write-kept", "pause", "cut-off")
"""Faults that set something and wait."""


def context_at(now: int, scope: str = "1/1/1/1") -> InjectionContext:
    """A run up to that time."""
    small = scope_named(scope)
    world = build(small.options(), Choices(0, {}), Trace())
    context = InjectionContext(world, Script(world, small), watch_world(world))
    context.script.begin()
    while world.carry_out_one(now):
        pass
    return context


def inject(context: InjectionContext, fault: str, number: int = 0) -> None:
    FAULTS[fault].inject(context, number)


def mark(context: InjectionContext, fault: str, number: int = 0) -> Mark:
    return FAULTS[fault].mark(context, number)


def until(context: InjectionContext, wanted: Callable[[], bool]) -> None:
    while not wanted():
        assert context.world.carry_out_one(context.script.end)


def until_unsynced(context: InjectionContext) -> None:
    until(context, lambda: context.broker(0).disk.unsynced > 0)


OF_TREES = ("volume-gone", "overtaken", "link-dead", "link-down")


def test_every_broker_client_and_place_can_be_injected() -> None:
    counts = {fault.name: fault.count(LARGER) for fault in FAULTS.values()}

    assert counts.pop("client-crash") == counts.pop("link-breaks") == 3
    assert counts.pop("cut-off") == counts.pop("not-heard") == 7
    assert counts.pop("lost") == 1
    assert [counts.pop(fault) for fault in OF_TREES] == [0, 0, 0, 0]
    assert set(counts.values()) == {4}


@pytest.mark.parametrize("fault", ["crash", "crash-but-last", "kill", *TRAPS[:-1]])
def test_a_broker_that_does_not_run_cannot_be_injected(fault: str) -> None:
    context = context_at(SECOND)
    context.broker(0).crash()

    assert mark(context, fault) is None
    inject(context, fault)
    assert context.broker(0).fuse == context.broker(0).paused_until == 0


def test_what_is_not_synced_goes_or_all_but_the_last_or_nothing() -> None:
    left = {}
    for fault in ("crash", "crash-but-last", "kill"):
        context = context_at(SECOND)
        until_unsynced(context)
        before, unsynced = context.broker(0).disk.written, context.broker(0).disk.unsynced
        inject(context, fault)
        left[fault] = (before - context.broker(0).disk.written) - unsynced

    assert left == {"crash": 0, "crash-but-last": 0, "kill": -1}


def test_who_is_cut_off_neither_hears_nor_is_heard() -> None:
    context = context_at(SECOND, "1/2/1/1")
    inject(context, "cut-off", 1)
    network = context.world.network

    assert context.places()[:3] == ["phb1", "shb1", "shb2"]
    assert network.is_cut("shb1", "phb1")
    assert network.is_cut("phb1", "shb1")
    assert network.is_cut("client1", "shb1")
    assert not network.is_cut("phb1", "shb2")


def test_a_frame_between_brokers_can_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_at(SECOND // 10, "1/2/1/1")
    assert mark(context, "lost") is None
    until(context, lambda: context.world.next_kind()[1] == "frame")
    dropped: list[tuple[str, str]] = []
    monkeypatch.setattr(context.world, "drop_one", lambda: dropped.append(context.world.next_kind()))

    assert mark(context, "lost") == ("lost", context.position)
    inject(context, "lost")
    assert [kind for _, kind in dropped] == ["frame"]


def test_a_clients_link_breaks_while_something_is_on_its_way() -> None:
    context = context_at(SECOND - 1)
    assert mark(context, "link-breaks") is None
    until(context, lambda: mark(context, "link-breaks") is not None)
    links = context.world.network.client_links
    client = context.client(0)
    assert any(link.client is client for link in links.values())

    inject(context, "link-breaks")
    assert not any(link.client is client for link in links.values())
    assert client.running
    assert mark(context, "link-breaks") is None


# ------------------------------------------------------------------------------------------- nodes without roles


def test_a_node_without_roles_can_lose_its_volume() -> None:
    context = context_at(SECOND // 2, "1-2-1/1/1")
    node = context.world.brokers["ib2"]
    disk = node.disk

    assert FAULTS["volume-gone"].count(scope_named("1-2-1/1/1")) == 2
    assert mark(context, "volume-gone", 1) is not None
    inject(context, "volume-gone", 1)
    assert node.disk is not disk
    assert not node.running
    assert mark(context, "volume-gone", 1) is None


def test_each_link_of_the_map_can_be_dead_or_go_down() -> None:
    context = context_at(SECOND // 2, "1-2-1/1/1")
    scope, network = scope_named("1-2-1/1/1"), context.world.network
    assert (scope.links, scope_named("1-1-1/1/1").links) == (5, 2)
    pairs = context.world.topology.links  # type: ignore[union-attr]
    before = len(list(network.links_up()))

    inject(context, "link-down", 0)
    assert len(list(network.links_up())) == before - 1
    assert mark(context, "link-down", 0) is None
    assert mark(context, "link-down", 1) == ("link-down", 1, context.position)

    one, other = pairs[1]
    inject(context, "link-dead", 1)
    assert (network.is_cut(one, other), network.is_cut(other, one)) == (True, True)


def test_a_frame_can_be_overtaken() -> None:
    context = context_at(SECOND // 10, "1-2-1/1/1")
    until(context, lambda: context.world.next_kind()[1] == "frame")
    assert mark(context, "overtaken") == ("overtaken", context.position)
    count = len(context.world._heap)

    inject(context, "overtaken")
    assert len(context.world._heap) == count
    until(context, lambda: context.world.next_kind()[1] != "frame")
    assert mark(context, "overtaken") is None


@pytest.mark.parametrize("fault", ["cut-off", "not-heard"])
def test_where_heartbeats_notice_what_is_cut_it_matters_since_when_it_is(fault: str) -> None:
    tree, mesh = context_at(SECOND // 2, "1-1-1/1/1"), context_at(SECOND // 2, "1/2/1/1")

    assert tree.position in (mark(tree, fault) or ())
    assert mesh.position not in (mark(mesh, fault) or ())

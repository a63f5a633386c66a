"""The little network: time, links that behave as they should and as they may, and processes that come and go."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import (
    LINK_LOW,
    Dial,
    Hangup,
    Know,
    NetworkMap,
    Post,
    Probe,
    Save,
    SendFrame,
    Undial,
    Wake,
    Want,
)
from gapless.core.network.seam import Effect
from gapless.core.stream.knowledge import Knowledge
from gapless_testing.routing import CHAIN, PAIR, Clause, Topology
from gapless_testing.routing.faults import MS, SECOND, RoutingFaults
from gapless_testing.routing.network import PENDING_MAX, BrokerHost, Pace, VirtualNetwork
from unit.gapless_testing.routing.scripted import ScriptedHarness, ScriptedRouter, network, router
from unit.gapless_testing.routing.seam import breaks


class Bystander:
    """A stand-in that notes what happens to it."""

    def __init__(self, host: BrokerHost) -> None:
        self.notes: list[object] = []
        host.stand_ins.append(self)

    def start(self) -> None:
        self.notes.append("start")

    def crash(self) -> None:
        self.notes.append("crash")

    def introduce(self) -> None:
        self.notes.append("introduce")

    def attend(self, effect: Effect) -> None:
        self.notes.append(effect)


def frames(made: VirtualNetwork, broker: str) -> list[bytes]:
    return [frame for _, frame, _ in router(made, broker).called("frame")]


def send(made: VirtualNetwork, count: int, *, link: int = 1) -> None:
    host = made.hosts["p"]
    for number in range(count):
        host._act(SendFrame(link, b"%d" % number))


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# ---------------------------------------------------------------------------------------------- time


def test_a_router_that_is_woken_without_end() -> None:
    made = network()
    router(made, "p").wake_at = 0
    made.hosts["p"].tell(Probe("p@1", 1))

    with breaks(Clause.BOUNDED, "wakes at one moment"):
        made.run(1)


def test_a_router_that_says_too_much_at_once() -> None:
    def chatter(_router: ScriptedRouter, method: str, _arguments: tuple[Any, ...]) -> list[Effect]:
        return [SendFrame(1, b"")] * (ScriptedHarness.frames_per_call_max + 1) if method == "probe" else []

    made = network(ScriptedHarness(chatter))

    with breaks(Clause.BOUNDED, "frames in answer to one Probe"):
        made.hosts["p"].tell(Probe("p@1", 1))


# --------------------------------------------------------------------------------------------- links


def test_so_much_may_not_wait() -> None:
    made = network()
    made.deafen(made.hosts["s"])
    with breaks(Clause.BOUNDED, "wait on a link"):
        for _ in range(PENDING_MAX // LINK_LOW + 1):
            made.hosts["p"].links[1].send(made.hosts["p"], bytes(LINK_LOW))


def test_a_storm_is_noticed_before_it_takes_all_the_time() -> None:
    def echo(_router: ScriptedRouter, method: str, arguments: tuple[Any, ...]) -> list[Effect]:
        return [SendFrame(arguments[0], arguments[1])] * 2 if method == "frame" else []

    made = network(ScriptedHarness(echo))
    send(made, 1)

    with breaks(Clause.BOUNDED, "more than 20,000 frames are sent within a second"):
        made.run(SECOND)


@pytest.mark.parametrize("effect", ["full", Want("p@1", ((1, 2),), None, "s:store", again=False), None])
def test_what_is_no_effect_is_noticed(effect: Any) -> None:
    with breaks(Clause.SEAM, "no effect"):
        network(ScriptedHarness(lambda _router, method, _arguments: [effect] if method == "start" else []))


@pytest.mark.parametrize("effect", [SendFrame(9, b"to nobody"), Hangup(9)])
def test_a_link_that_is_not_there_is_noticed(effect: Effect) -> None:
    with breaks(Clause.SEAM, r"link 9 is used, and there are \[1\]"):
        network().hosts["p"]._act(effect)


def test_there_are_the_links_of_the_harness_and_no_others() -> None:
    class Fewer(ScriptedHarness):
        def network(self, topology: Topology) -> NetworkMap:
            return NetworkMap(topology.network.nodes, topology.links[:1])

    made = network(Fewer(), CHAIN)
    made.run(2 * SECOND)

    assert {link.pair for link, _ in made.ends()} == {("i", "p")}


def test_who_hangs_up_is_linked_again_as_long_as_the_other_end_wishes() -> None:
    made = network()
    made.hosts["p"]._act(Hangup(1))
    made.run(2 * SECOND)
    assert [peer for _, peer, _, _ in router(made, "p").called("link_up")] == ["s", "s"]

    for host in made.hosts.values():
        host._act(Hangup(2))
    made.run(2 * SECOND)

    assert len(router(made, "p").called("link_up")) == 2


def test_a_link_stays_as_long_as_one_end_wishes_for_it_and_one_that_neither_wishes_for_is_over() -> None:
    made = network()
    made.hosts["p"]._act(Undial("s"))
    made.run(2 * SECOND)
    assert router(made, "p").called("link_down") == []

    made.hosts["s"]._act(Undial("p"))
    made.run(2 * SECOND)
    assert len(router(made, "p").called("link_down")) == len(router(made, "s").called("link_down")) == 1
    assert len(router(made, "p").called("link_up")) == 1
    made.hosts["s"]._act(Dial("p"))
    made.run(SECOND)

    assert len(router(made, "p").called("link_up")) == 2


def test_another_router_wishes_for_the_links_of_the_map_again() -> None:
    made = network()
    for name, peer in (("p", "s"), ("s", "p")):
        made.hosts[name]._act(Undial(peer))
    made.run(SECOND)

    made.hosts["s"].vanish()
    made.run(SECOND)

    assert len(router(made, "s").called("link_up")) == 1


@pytest.mark.parametrize("peer", ["p", "nobody"])
def test_who_lets_go_of_nobody_is_noticed(peer: str) -> None:
    with breaks(Clause.SEAM, "names nobody else whom the map has"):
        network(ScriptedHarness(lambda _router, method, _arguments: [Undial(peer)] if method == "link_up" else []))


def test_a_fact_that_nothing_takes_is_noticed() -> None:
    class Deaf(ScriptedHarness):
        def make(self) -> Any:
            made = super().make()
            handlers = {kind: handler for kind, handler in made.handlers().items() if kind is not Post}
            made.handlers = lambda: handlers  # type: ignore[method-assign]
            return made

    with breaks(Clause.SEAM, r"handlers\(\) takes no Post"):
        network(Deaf())


def test_what_a_router_is_told_cannot_be_changed() -> None:
    context = router(network(), "p").context

    for rows in (context.config, context.saved, context.network.nodes):
        with pytest.raises(TypeError):
            rows["more"] = 1  # type: ignore[index]


def test_a_stamp_that_changes_afterwards_is_noticed() -> None:
    stamp = {"s:store": 1}
    said = Know(Knowledge("p@1", 1, 2, stamp=stamp))
    made = network(ScriptedHarness())
    made.hosts["s"]._check_effect("Know", said)
    made.hosts["s"].tell(Wake())
    stamp["s:store"] = 2

    with breaks(Clause.TRUTH, "which it had said"):
        made.hosts["s"].tell(Wake())


def test_links_lose_repeat_and_reorder() -> None:
    made = network()
    made.faults = RoutingFaults(loss=0.3, duplicates=0.3, jitter=100 * MS)
    send(made, 100)
    made.run(SECOND)
    arrived = frames(made, "s")

    assert set(arrived) < set(numbers(100))
    assert len(arrived) > len(set(arrived))
    assert arrived != sorted(arrived, key=int)


# ------------------------------------------------------------------------------- coming and going


def test_a_process_that_crashes_takes_everything_with_it_but_what_was_saved() -> None:
    made = network()
    p = made.hosts["p"]
    bystander = Bystander(p)
    p._act(Save("key", b"value", "cookie"))
    p._act(Save("gone", b"value"))
    made.run(10 * MS)
    p._act(Save("gone", None))
    made.run(10 * MS)
    assert router(made, "p").called("saved") == [("cookie",)]
    p._act(Save("late", b"value", "cookie"))
    p.later(SECOND, lambda: bystander.notes.append("later"))
    p.crash()
    p.crash()
    assert not p.up
    p.tell(Probe("p@1", 1))
    made.run(2 * SECOND)
    p.start()
    made.run(SECOND)

    assert bystander.notes[-2:] == ["crash", "start"]
    assert "later" not in bystander.notes
    assert router(made, "p").context.saved == {"key": b"value"}
    assert [peer for _, peer, _, _ in router(made, "p").called("link_up")] == ["s"]


# ------------------------------------------------------------------------------------------- trouble


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        (RoutingFaults(cut_every=SECOND), "link_down"),
        (RoutingFaults(vanish_every=SECOND), "vanish"),
        (RoutingFaults(crash_every=SECOND), "crash"),
        (RoutingFaults(), ""),
    ],
)
def test_trouble_comes_as_it_was_ordered(faults: RoutingFaults, kind: str) -> None:
    made = network()
    made.faults = faults
    made.run(20 * SECOND)
    hosts = made.hosts.values()
    processes, routers = sum(host.process for host in hosts), sum(host.routers for host in hosts)
    found = "crash" if processes > 2 else "vanish" if routers > 2 else ""
    cut = any(host.router and router(made, host.name).called("link_down") for host in hosts)

    assert (found or ("link_down" if cut else "")) == kind


def test_a_seed_makes_the_same_world_again() -> None:
    def live(seed: int) -> list[Any]:
        made = VirtualNetwork(ScriptedHarness(), CHAIN, seed)
        seen: list[Any] = []
        made.observers.append(lambda broker, now, direction, what: seen.append((broker, now, direction, type(what))))
        made.faults = RoutingFaults(crash_every=SECOND, vanish_every=SECOND, cut_every=SECOND)
        made.start()
        made.run(10 * SECOND)
        return seen

    assert live(3) == live(3)
    assert live(3) != live(4)


# ------------------------------------------------------------------------------- how fast a network is


def arrivals(made: VirtualNetwork, broker: str) -> list[int]:
    """When frames arrived, since the network began."""
    return [now - SECOND for method, now, _ in router(made, broker).calls if method == "frame"]


def test_a_frame_is_on_its_way_for_the_latency() -> None:
    made = network(pace=Pace(latency=30 * MS, spread=0))
    send(made, 2)
    made.run(SECOND)

    assert arrivals(made, "s") == [30 * MS, 30 * MS]


def test_a_processor_is_busy_with_each_frame_at_both_ends_one_after_the_other() -> None:
    made = network(pace=Pace(latency=10 * MS, spread=0, frame_time=2 * MS, byte_time=1 * MS))
    send(made, 3)
    made.run(SECOND)

    assert arrivals(made, "s") == [(10 + 3 + number) * MS for number in (3, 6, 9)]


def test_a_frame_that_waits_for_the_processor_is_lost_with_the_link() -> None:
    made = network(pace=Pace(latency=MS, spread=0, frame_time=100 * MS))
    send(made, 1)
    made.run(150 * MS)
    made.part()
    made.run(SECOND)

    assert arrivals(made, "s") == []


def test_a_cut_is_noticed_within_the_time_that_it_takes() -> None:
    noticed: list[int] = []
    for within in (20 * MS, 2 * SECOND):
        made = network(pace=Pace(noticed_within=within))
        made.part()
        made.run(3 * SECOND)
        noticed += [now - SECOND for method, now, _ in router(made, "p").calls if method == "link_down"]

    assert noticed[0] < 20 * MS < 100 * MS < noticed[1]


def test_a_cut_is_noticed_so_late_at_both_ends() -> None:
    made = network(pace=Pace(noticed_within=0, noticed_after=2 * SECOND))
    made.part()
    made.run(3 * SECOND)

    for name in ("p", "s"):
        assert [now for method, now, _ in router(made, name).calls if method == "link_down"] == [3 * SECOND + MS]


def test_so_many_frames_may_be_sent_for_each_broker() -> None:
    made = network(topology=CHAIN, pace=Pace(frames_max=10))
    send(made, 50)

    with breaks(Clause.BOUNDED, "more than 50 frames are sent within a second"):
        send(made, 1)


def test_where_nobody_looks_on_nothing_is_judged_and_facts_are_shown_all_the_same() -> None:
    lie = Know(Knowledge("p@1", 1, 2))
    harness = ScriptedHarness(lambda _router, method, _arguments: [lie] if method == "probe" else [])
    made = network(harness, pace=Pace(judged=False))
    shown: list[tuple[str, str, object]] = []
    made.observers.append(lambda broker, _now, direction, what: shown.append((broker, direction, what)))

    made.hosts["p"].tell(Probe("p@1", 1))

    assert shown == [("p", "told", Probe("p@1", 1))]
    with breaks(Clause.TRUTH, "never said anything"):
        network(harness).hosts["p"].tell(Probe("p@1", 1))


def test_a_broker_may_start_later_and_is_linked_then() -> None:
    made = VirtualNetwork(ScriptedHarness(), PAIR, 1)
    made.start({"s": SECOND})
    made.run(SECOND // 2)
    assert not made.hosts["s"].up
    made.run(2 * SECOND)

    assert [peer for _, peer, _, _ in router(made, "s").called("link_up")] == ["p"]

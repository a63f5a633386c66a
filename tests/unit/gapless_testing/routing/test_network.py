"""The little network: time, links that behave as they should and as they may, and processes that come and go."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import (
    LINK_HIGH,
    LINK_LOW,
    Dial,
    Hangup,
    Know,
    NetworkMap,
    NetworkNode,
    Post,
    Probe,
    Save,
    SendFrame,
    Wake,
    Want,
)
from gapless.core.network.seam import Effect
from gapless.core.stream.knowledge import Knowledge
from gapless_testing.routing import CHAIN, PAIR, Clause, Topology
from gapless_testing.routing.faults import MS, SECOND, RoutingFaults
from gapless_testing.routing.network import PENDING_MAX, BrokerHost, VirtualNetwork
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


def test_things_happen_in_their_order_and_at_their_time() -> None:
    made = VirtualNetwork(ScriptedHarness(), PAIR, 1)
    seen: list[tuple[str, int]] = []
    for name, delay in (("b", 5), ("a", 3), ("c", 5), ("late", 6)):
        made.later(delay, lambda name=name: seen.append((name, made.now)))  # type: ignore[misc]
    start = made.now

    made.run(5)

    assert seen == [("a", start + 3), ("b", start + 5), ("c", start + 5)]
    assert made.now == start + 5


def test_a_router_is_woken_when_it_wants() -> None:
    def sleep_again(woken: ScriptedRouter, method: str, _arguments: tuple[Any, ...]) -> list[Effect]:
        woken.wake_at = None if method == "wake" else woken.wake_at
        return []

    made = network(ScriptedHarness(sleep_again))
    woken = router(made, "p")
    woken.wake_at = made.now + 5 * MS
    made.hosts["p"].tell(Probe("p@1", 1))
    made.run(4 * MS)
    assert woken.called("wake") == []

    woken.wake_at = made.now + 3 * MS
    made.run(2 * MS)
    assert woken.called("wake") == [], "it changed its mind"
    made.run(1 * MS)
    assert woken.calls[-1][:2] == ("wake", made.now)


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


@pytest.mark.parametrize("streams", [True, False])
def test_what_nobody_reads_waits_and_the_router_is_told(streams: bool) -> None:
    made = network(ScriptedHarness(streams=streams))
    one, other = made.hosts["p"], made.hosts["s"]
    link, size = one.links[1], LINK_HIGH // 4
    made.deafen(other)
    for number in range(5):
        link.send(one, bytes([number]) * size)
    one.tell_of_room()
    made.run(SECOND)
    assert frames(made, "s") == []
    assert router(made, "p").called("room") == [(1, 5 * size)]

    made.listen(other)
    made.run(SECOND)
    assert sorted(frame[0] for frame in frames(made, "s")) == [0, 1, 2, 3, 4]
    assert router(made, "p").called("room")[1:] == [(1, LINK_HIGH), (1, LINK_LOW)]
    assert router(made, "s").called("room") == []


def test_so_much_may_not_wait() -> None:
    made = network()
    made.deafen(made.hosts["s"])
    with breaks(Clause.BOUNDED, "wait on a link"):
        for _ in range(PENDING_MAX // LINK_LOW + 1):
            made.hosts["p"].links[1].send(made.hosts["p"], bytes(LINK_LOW))


def test_of_a_link_that_is_gone_nothing_waits() -> None:
    made = network()
    host = made.hosts["p"]
    made.deafen(made.hosts["s"])
    for _ in range(5):
        host.links[1].send(host, bytes(LINK_LOW))
    made.part()
    made.run(SECOND)
    host.tell_of_room()
    made.listen(made.hosts["s"])
    made.run(SECOND)

    assert router(made, "p").called("room") == []
    assert frames(made, "s") == []


def test_a_link_comes_up_at_both_ends() -> None:
    made = network()

    p, s = made.hosts["p"].incarnation, made.hosts["s"].incarnation
    assert router(made, "p").called("link_up") == [(1, "s", frozenset({"shb"}), s)]
    assert router(made, "s").called("link_up") == [(1, "p", frozenset({"phb"}), p)]


def test_an_incarnation_is_a_name_and_no_number_that_rises() -> None:
    host = network().hosts["p"]
    seen = []
    for _ in range(20):
        host.vanish()
        seen.append(host.incarnation)

    assert len(set(seen)) == len(seen)
    assert seen != sorted(seen)


def test_a_frame_may_come_once_more_on_a_later_link() -> None:
    made = network()
    made.faults = RoutingFaults(late=1.0)
    send(made, 50)
    made.hosts["s"].vanish()
    made.run(20 * SECOND)

    assert 30 < len(frames(made, "s")) <= 50
    assert {link for link, *_ in router(made, "s").called("frame")} == {2}


def test_a_storm_is_noticed_before_it_takes_all_the_time() -> None:
    def echo(_router: ScriptedRouter, method: str, arguments: tuple[Any, ...]) -> list[Effect]:
        return [SendFrame(arguments[0], arguments[1])] * 2 if method == "frame" else []

    made = network(ScriptedHarness(echo))
    send(made, 1)

    with breaks(Clause.BOUNDED, "more than 20,000 frames are sent within a second"):
        made.run(SECOND)


def test_nothing_comes_late_on_streams() -> None:
    made = network(ScriptedHarness(streams=True))
    made.faults = RoutingFaults(late=1.0)
    send(made, 5)
    made.run(20 * SECOND)

    assert len(frames(made, "s")) == 5


@pytest.mark.parametrize("effect", ["full", Want("p@1", ((1, 2),), None, "s:store", again=False), None])
def test_what_is_no_effect_is_noticed(effect: Any) -> None:
    with breaks(Clause.SEAM, "no effect"):
        network(ScriptedHarness(lambda _router, method, _arguments: [effect] if method == "start" else []))


@pytest.mark.parametrize("effect", [SendFrame(9, b"to nobody"), Hangup(9)])
def test_a_link_that_is_not_there_is_noticed(effect: Effect) -> None:
    with breaks(Clause.SEAM, r"link 9 is used, and there are \[1\]"):
        network().hosts["p"]._act(effect)


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


@pytest.mark.parametrize("streams", [True, False])
def test_a_good_link(streams: bool) -> None:
    made = network(ScriptedHarness(streams=streams))
    send(made, 20)
    made.run(SECOND)

    assert sorted(frames(made, "s"), key=int) == numbers(20)


def test_a_stream_keeps_its_order_and_loses_nothing() -> None:
    made = network(ScriptedHarness(streams=True))
    made.faults = RoutingFaults(loss=0.5, duplicates=0.5, jitter=100 * MS)
    send(made, 50)
    made.run(SECOND)

    assert frames(made, "s") == numbers(50)


def test_other_links_lose_repeat_and_reorder() -> None:
    made = network()
    made.faults = RoutingFaults(loss=0.3, duplicates=0.3, jitter=100 * MS)
    send(made, 100)
    made.run(SECOND)
    arrived = frames(made, "s")

    assert set(arrived) < set(numbers(100))
    assert len(arrived) > len(set(arrived))
    assert arrived != sorted(arrived, key=int)


def test_a_link_that_goes_down_loses_the_end_of_what_was_sent() -> None:
    made = network(ScriptedHarness(streams=True))
    made.faults = RoutingFaults(jitter=100 * MS)
    send(made, 20)
    made.run(60 * MS)
    made.part()
    send(made, 1)
    made.run(SECOND)
    arrived = frames(made, "s")

    assert arrived == numbers(20)[: len(arrived)]
    assert 0 < len(arrived) < 20
    assert [router(made, broker).called("link_down") for broker in "ps"] == [[(1,)], [(1,)]]


def test_a_network_that_was_parted_joins_under_new_numbers() -> None:
    made = network()
    made.part()
    made.run(3 * SECOND)
    assert len(router(made, "p").called("link_up")) == 1
    made.join()
    made.run(SECOND)

    assert [link for link, *_ in router(made, "p").called("link_up")] == [1, 2]
    send(made, 1, link=2)
    made.run(SECOND)
    assert frames(made, "s") == [b"0"]


def test_a_router_dials_and_hangs_up() -> None:
    made = network(topology=CHAIN)
    p = made.hosts["p"]
    for peer in ("t", "t", "nobody", "p"):
        p._act(Dial(peer))
    made.run(SECOND)
    assert [peer for _, peer, _, _ in router(made, "p").called("link_up")] == ["i", "t"]

    p._act(Hangup(2))
    made.run(5 * SECOND)
    assert router(made, "t").called("link_down") == [(2,)]
    assert len(router(made, "p").called("link_up")) == 2, "it is not dialled again"

    p._act(Hangup(1))
    made.run(5 * SECOND)
    assert [peer for _, peer, _, _ in router(made, "p").called("link_up")] == ["i", "t", "i"]


# ------------------------------------------------------------------------------- coming and going


def test_a_router_that_vanishes_is_replaced_and_told_what_there_is() -> None:
    made = network()
    bystander = Bystander(made.hosts["p"])
    before = router(made, "p")
    made.hosts["p"].later(SECOND, lambda: bystander.notes.append("later"))
    made.hosts["p"].vanish()
    made.run(2 * SECOND)
    after = router(made, "p")

    assert after is not before
    assert after.context.seed != before.context.seed
    assert bystander.notes == ["introduce", "later"]
    assert [(link, incarnation) for link, _, _, incarnation in after.called("link_up")] == [
        (2, made.hosts["s"].incarnation)
    ]
    assert before.called("link_down") == []
    assert router(made, "s").called("link_down") == [(1,)]
    assert router(made, "s").called("link_up")[-1] == (2, "p", frozenset({"phb"}), made.hosts["p"].incarnation)


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


def test_what_a_router_says_goes_to_who_stands_around_it() -> None:
    effect = Dial("s")
    made = network()
    bystander = Bystander(made.hosts["p"])
    made.hosts["p"]._act(effect)
    assert bystander.notes == []
    made.hosts["p"]._act(Probe("p@1", 1))

    assert bystander.notes == [Probe("p@1", 1)]


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


def test_the_guard_is_there_while_a_router_is_called_and_not_otherwise() -> None:
    inside: list[bool] = []

    class Guard:
        def __enter__(self) -> None:
            inside.append(True)

        def __exit__(self, *_: object) -> None:
            inside.append(False)

    made = VirtualNetwork(ScriptedHarness(), PAIR, 1, guard=Guard())
    made.start()

    assert len(inside) == 2 * sum(len(router(made, broker).calls) for broker in "ps")
    assert inside[-1] is False


def test_every_router_is_given_the_same_map() -> None:
    made = network(topology=CHAIN)
    maps = [router(made, broker).context.network for broker in CHAIN.brokers]

    assert maps == [CHAIN.network] * len(maps)
    assert CHAIN.network.nodes["i"] == NetworkNode(), "it stands between others, and hosts nothing"
    assert (CHAIN.network.with_role("shb"), CHAIN.network.links) == (["s", "t"], CHAIN.links)


def test_a_harness_may_put_nodes_in_places() -> None:
    class Placing(ScriptedHarness):
        def network(self, topology: Topology) -> NetworkMap:
            nodes = super().network(topology).nodes
            return NetworkMap({broker: NetworkNode(node.roles, ("cell", broker)) for broker, node in nodes.items()})

    assert router(network(Placing()), "s").context.network.nodes["s"] == NetworkNode(frozenset({"shb"}), ("cell", "s"))

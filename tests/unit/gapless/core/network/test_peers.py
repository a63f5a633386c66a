"""The links of a node: who is let in, which of two stays, who is dialed again, and what the operator hears."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.alarms import AlarmCode
from gapless.core.gauges import Family, value_of
from gapless.core.network.links import GREETING_TIME, SendPayloads
from gapless.core.network.peers import (
    COMPLAINT_PERIOD,
    DUPLICATE,
    GIVEN_UP,
    LINK_BEHIND,
    LINK_BYTES,
    LINK_FRAMES,
    LINK_ROUND_TRIP,
    LINK_UP,
    LINKS_ENDED,
    REDIAL_MOST,
    REDIAL_REFUSED,
    STRANGERS_MAX,
    Draws,
)
from unit.gapless.core.network.link_world import SECOND, LinkNode, World


def linked(**identity: object) -> tuple[World, LinkNode, LinkNode]:
    """Two nodes with a link that `a` has dialed."""
    world = World()
    a, b = world.start("a", 11), world.start("b", 22, **identity)
    a.dial("b")
    world.run()
    return world, a, b


def codes(node: LinkNode) -> list[AlarmCode]:
    return [alarm.code for alarm in node.alarms]


def test_both_ends_hear_who_is_there() -> None:
    _, a, b = linked()

    assert [(up.peer, up.roles, up.incarnation) for up in a.up.values()] == [("b", frozenset({"shb"}), 22)]
    assert [(up.peer, up.roles, up.incarnation) for up in b.up.values()] == [("a", frozenset({"phb"}), 11)]
    assert a.alarms == b.alarms == []


def test_nobody_is_up_before_both_directions_are_proven() -> None:
    world = World()
    a, b = world.start("a"), world.start("b")
    world.cuts.add(("b", "a"))

    a.dial("b")
    world.advance(GREETING_TIME / SECOND - 0.1)

    assert a.up == b.up == {}


def test_a_node_that_is_not_on_the_map_is_not_dialed() -> None:
    world = World()
    a = world.start("a")

    a.dial("z")
    a.dial("a")
    world.advance(10)

    assert a.dials == []


@pytest.mark.parametrize(
    ("identity", "reason", "told"),
    [
        ({"secret": b"another long secret"}, "does not know the network's secret", "the secrets differ"),
        ({"secret": b""}, "does not know the network's secret", "the secrets differ"),
        ({"network": "trains"}, "it is in the network 'flights', not in 'trains'", "another network"),
        ({"router": "delta"}, "has the router 'straight', this node 'delta'", "another router"),
    ],
)
def test_a_node_of_another_kind_gets_no_link(identity: dict[str, object], reason: str, told: str) -> None:
    world, a, b = linked(**identity)

    assert a.up == b.up == {}
    refusing, refused = (a, b) if "secret" in identity else (b, a)
    assert reason in "".join(alarm.text for alarm in refusing.alarms)
    assert codes(refusing) == [AlarmCode.NODE_REFUSED]
    assert told in "".join(refused.closed.values())
    world.advance(7)
    assert AlarmCode.NODE_UNREACHABLE in codes(a)


def test_what_a_stranger_is_told_holds_no_name_of_this_network() -> None:
    _, a, _ = linked(network="secret-project")

    (told,) = a.closed.values()
    assert told == "it closed the link: this node is in another network"


def test_roles_that_are_not_those_of_the_map_are_refused() -> None:
    _, a, b = linked(roles=frozenset({"phb", "shb"}))

    assert a.up == b.up == {}
    (alarm,) = a.alarms
    assert "has the roles ['phb', 'shb'], and on this node's map ['shb']" in alarm.text


def test_an_impostor_who_knows_the_secret_is_found_out_by_its_certificate() -> None:
    world = World()
    a, c = world.start("a"), world.start("c", node="b", roles=frozenset({"shb"}), certified=True)
    world.nodes["a"] = a = world.start("a", certified=True)
    a.certificate, c.certificate = "a", "c"

    c.dial("a")
    world.run()

    assert a.up == {}
    (alarm,) = a.alarms
    assert "it calls itself 'b', and its certificate is of 'c'" in alarm.text
    assert alarm.about == ""


def test_whoever_answers_at_a_node_s_address_must_be_that_node() -> None:
    world = World()
    a = world.start("a")
    world.nodes["b"] = world.start("c")

    a.dial("b")
    world.run()

    assert a.up == {}
    assert "it closed the link: this is another node" in a.closed.values()


def test_a_peer_that_has_another_map_gets_its_link_and_the_operator_hears_of_it() -> None:
    world, a, b = linked(map_digest=b"an older one")

    assert a.peers == ["b"]
    assert codes(a) == codes(b) == [AlarmCode.MAPS_DIFFER]
    world.kill("b")
    world.start("b", 23)
    world.advance(1)
    assert [(alarm.code, alarm.over) for alarm in a.alarms] == [
        (AlarmCode.MAPS_DIFFER, False),
        (AlarmCode.MAPS_DIFFER, True),
    ]


def test_crossing_dials_end_with_one_link() -> None:
    world = World()
    a, b = world.start("a"), world.start("b")

    a.dial("b")
    b.dial("a")
    world.advance(3)

    assert (a.peers, b.peers) == (["b"], ["a"])
    assert len(a.closed) == len(b.closed) == 1
    assert a.alarms == b.alarms == []
    assert a.dials + b.dials == [SECOND, SECOND]


@given(st.lists(st.sampled_from(["first", "second", "a", "b"]), max_size=40), st.randoms(use_true_random=False))
def test_however_dials_cross_one_link_is_left_and_both_ends_mean_the_same(order: list[str], random: object) -> None:
    world = World()
    a, b = world.start("a"), world.start("b")
    a.dial("b")
    b.dial("a")

    for choice in order:  # what is on its way on different links overtakes, on one link it keeps its order
        if choice in {"a", "b"}:
            world.nodes[choice].dial("b" if choice == "a" else "a")
        elif world.later:
            if choice == "second" and len(world.later) > 1 and _link_of(world.later[0]) != _link_of(world.later[1]):
                world.later[0], world.later[1] = world.later[1], world.later[0]
            call, arguments = world.later.popleft()
            call(*arguments)
    world.advance(12)

    assert (a.peers, b.peers) == (["b"], ["a"])
    assert a.wires[a.link_to("b")] is b.wires[b.link_to("a")]


def _link_of(waiting: tuple[object, tuple[object, ...]]) -> object:
    """The wire that something is on."""
    call, arguments = waiting
    if getattr(call, "__name__", "") == "_close":
        return arguments[0]
    if getattr(call, "__name__", "") == "receive":
        return call.__self__.wires[arguments[0]]  # type: ignore[attr-defined]
    return arguments[1]


@pytest.mark.parametrize("later", [23, 21], ids=["", "with a clock that was set back, and no volume"])
def test_a_peer_that_restarts_takes_the_place_of_its_older_process_as_soon_as_that_is_over(later: int) -> None:
    world = World()
    a, b = world.start("a"), world.start("b", 22)
    b.dial("a")
    world.advance(1)
    del world.nodes["b"]  # its machine is gone: nothing is closed
    again = world.start("b", later)

    again.dial("a")
    world.run()
    assert [up.incarnation for up in a.up.values()] == [22]
    world.advance(4)

    assert [up.incarnation for up in a.up.values()] == [later]
    assert "nothing was heard of it for 1.5 s" in a.closed.values()
    assert again.peers == ["a"]
    assert a.alarms == again.alarms == []
    assert a.told == again.told == []


def test_a_peer_that_has_lost_its_end_is_refused_until_the_other_end_is_over_too() -> None:
    world, a, b = linked()
    world.advance(6)
    old = b.link_to("a")
    world.cuts |= {("a", "b"), ("b", "a")}
    a.links.on_closed(a.link_to("b"), "connection reset", world.now)  # of which `b` hears nothing
    a.settle()
    world.run()
    world.cuts.clear()

    world.advance(0.3)
    assert b.link_to("a") == old
    assert DUPLICATE in b.closed.values()
    world.advance(5)

    assert b.closed[old] == "nothing was heard of it for 1.5 s"
    assert (a.peers, b.peers) == (["b"], ["a"])
    assert a.alarms == b.alarms == []


def test_a_link_that_breaks_is_dialed_again_soon() -> None:
    world, a, b = linked()
    world.advance(10)
    a.links.on_closed(a.link_to("b"), "connection reset", world.now)
    b.links.on_closed(b.link_to("a"), "connection reset", world.now)
    a.settle()
    b.settle()
    assert a.up == b.up == {}

    world.advance(0.2)

    assert a.peers == ["b"]
    assert a.alarms == []
    assert value_of(list(a.links.gauges()), LINKS_ENDED, node="b") == 1


@pytest.mark.parametrize(("fails_after", "most"), [(0.0, REDIAL_REFUSED), (0.4, REDIAL_REFUSED), (0.6, REDIAL_MOST)])
def test_who_does_not_answer_is_let_be_for_longer_each_time(fails_after: float, most: int) -> None:
    """Who refuses at once is dialed again within half a second, for as long as it takes."""
    world = World()
    world.refuses_after = fails_after
    a = world.start("a")

    a.dial("b")
    world.advance(60)

    pauses = [(later - earlier) / SECOND - fails_after for earlier, later in zip(a.dials, a.dials[1:], strict=False)]
    assert len(pauses) > 10
    assert 0.05 <= pauses[0] <= 0.2
    assert all(pause <= most / SECOND + 1e-6 for pause in pauses)
    assert all(pause >= most / SECOND / 2 - 1e-6 for pause in pauses[6:])
    assert len(set(pauses)) == len(pauses)  # drawn


def test_who_answers_and_refuses_is_let_be_as_one_that_is_silent() -> None:
    """A proof has to be computed for it: it is not asked twice a second."""
    world = World()
    a, _ = world.start("a", secret=b"another long secret"), world.start("b")

    a.dial("b")
    world.advance(60)

    pauses = [(later - earlier) / SECOND for earlier, later in zip(a.dials, a.dials[1:], strict=False)]
    assert all(pause >= REDIAL_MOST / SECOND / 2 for pause in pauses[6:])


def test_dialing_again_and_again_does_not_dial_more_often() -> None:
    world = World()
    a, patient = world.start("a"), World().start("a")
    for _ in range(200):
        a.dial("b")
        world.advance(0.05)

    patient.dial("b")
    patient.world.advance(10)

    assert len(a.dials) == len(patient.dials)


def test_the_operator_hears_once_who_is_not_there_and_once_that_he_is_back() -> None:
    world = World()
    a = world.start("a")
    a.dial("b")
    world.advance(30)

    (alarm,) = a.alarms
    assert (alarm.code, alarm.about, alarm.over) == (AlarmCode.NODE_UNREACHABLE, "b", False)
    assert alarm.text == "there is no link to the node 'b' at b:7500: connection refused"
    assert value_of(list(a.links.gauges()), LINK_UP, node="b") == 0
    world.start("b")
    world.advance(6)

    assert [alarm.over for alarm in a.alarms] == [False, True]
    assert value_of(list(a.links.gauges()), LINK_UP, node="b") == 1


def test_a_link_that_the_router_hangs_up_is_not_dialed_again_until_it_asks() -> None:
    world, a, b = linked()

    a.links.on_hangup(a.link_to("b"), world.now)
    a.settle()
    world.advance(20)
    assert a.up == b.up == {}
    assert "it closed the link: the router has hung up" in b.closed.values()
    a.dial("b")
    world.advance(10)

    assert a.peers == ["b"]


# ------------------------------------------------------------------- wishes that are over


def test_who_is_not_wished_for_any_more_is_not_dialed_and_the_alarm_is_over() -> None:
    world = World()
    a = world.start("a")
    a.dial("b")
    world.advance(20)
    dials = len(a.dials)

    a.undial("b")
    world.advance(60)

    assert [(alarm.code, alarm.about, alarm.over) for alarm in a.alarms] == [
        (AlarmCode.NODE_UNREACHABLE, "b", False),
        (AlarmCode.NODE_UNREACHABLE, "b", True),
    ]
    assert len(a.dials) == dials


def test_a_dial_that_is_under_way_is_given_up_and_raises_no_alarm() -> None:
    world = World()
    world.refuses_after = 4
    a = world.start("a")
    a.dial("b")
    world.run()

    a.undial("b")
    world.advance(30)

    assert len(a.dials) == 1
    assert GIVEN_UP in a.closed.values()
    assert a.alarms == []


def test_who_lets_go_and_dials_again_at_every_turn_dials_no_more_often_for_that() -> None:
    world, patient = World(), World().start("a")
    a = world.start("a")
    for _ in range(200):
        a.dial("b")
        a.undial("b")
        world.advance(0.05)

    patient.dial("b")
    patient.world.advance(10)

    assert 1 < len(a.dials) <= len(patient.dials) + 1


def test_a_link_that_the_other_end_still_wishes_for_stays() -> None:
    world, a, b = linked()
    b.dial("a")
    world.advance(1)

    a.undial("b")
    world.advance(20)

    assert (list(a.up), list(b.up)) == ([1], [1])


def test_a_link_that_neither_end_wishes_for_is_closed_and_stays_closed() -> None:
    world, a, b = linked()
    b.dial("a")
    a.undial("b")
    world.advance(5)

    b.undial("a")
    world.advance(30)

    assert a.up == b.up == {}
    assert "it closed the link: neither node wishes for it any more" in {*a.closed.values(), *b.closed.values()}
    assert (len(a.dials), len(b.dials)) == (1, 0)
    assert a.alarms == b.alarms == []


def test_a_link_that_only_its_dialer_wished_for_is_closed_when_it_does_not() -> None:
    world, a, b = linked()

    a.undial("b")
    world.advance(30)

    assert a.up == b.up == {}
    assert len(a.dials) == 1


def test_a_wish_that_comes_back_keeps_the_link() -> None:
    world, a, b = linked()
    b.dial("a")
    a.undial("b")
    world.advance(1)
    a.dial("b")
    world.advance(1)

    b.undial("a")
    world.advance(20)

    assert (list(a.up), list(b.up)) == ([1], [1])


def test_of_a_link_that_came_after_the_wish_was_over_the_dialer_decides() -> None:
    """The one has let go of a node that is not there; the node comes, dials, and lets go in its turn."""
    world = World()
    a = world.start("a")
    a.dial("b")
    world.advance(3)
    a.undial("b")
    b = world.start("b")
    b.dial("a")
    world.advance(20)
    assert (a.peers, b.peers) == (["b"], ["a"])

    b.undial("a")
    world.advance(20)

    assert a.up == b.up == {}
    assert len(b.dials) == 1


def test_who_knows_nothing_of_such_a_node_lets_go_of_nothing() -> None:
    _, a, _ = linked()

    a.undial("nobody")

    assert a.peers == ["b"]


@pytest.mark.parametrize("deaf", ["a", "b"])
def test_a_link_that_works_one_way_only_is_over_at_both_ends(deaf: str) -> None:
    world, a, b = linked()
    hearing = "b" if deaf == "a" else "a"
    world.cuts.add((hearing, deaf))
    world.unreachable |= {"a", "b"}

    world.advance(2.6)

    assert a.up == b.up == {}
    assert "nothing was heard of it for 1.5 s" in world.nodes[deaf].closed.values()
    reasons = "".join(world.nodes[hearing].closed.values())
    assert "one way only" in reasons or "nothing was heard" in reasons
    assert AlarmCode.NODE_REFUSED not in codes(a) + codes(b)


def test_a_link_without_traffic_stays_up() -> None:
    world, a, b = linked()

    world.advance(120)

    assert list(a.up) == list(b.up) == [1]


def test_a_flood_of_strangers_is_bounded_and_one_complaint() -> None:
    world = World()
    a = world.start("a")
    numbers = [a.links.on_accepted(f"203.0.113.1:{port}", "", world.now) for port in range(STRANGERS_MAX + 100)]
    a.settle()

    assert sum(number is not None for number in numbers) == STRANGERS_MAX
    assert codes(a) == [AlarmCode.NODE_REFUSED]
    world.advance(6)
    assert len(a.closed) == STRANGERS_MAX  # none of them said who he is
    assert a.links.on_accepted("203.0.113.1:1", "", world.now) is not None


def test_a_complaint_about_strangers_comes_once_in_a_while() -> None:
    world = World()
    a = world.start("a")
    for _ in range(10):
        number = a.links.on_accepted("203.0.113.1:1", "", world.now)
        assert number is not None
        a.receive(number, [b"GET"])
    assert len(a.alarms) == 1

    world.now += COMPLAINT_PERIOD
    number = a.links.on_accepted("203.0.113.1:1", "", world.now)
    assert number is not None
    a.receive(number, [b"?"])

    assert [alarm.about for alarm in a.alarms] == ["", ""]
    assert "somebody at 203.0.113.1:1 was refused: a payload of 1 bytes has no head" in a.alarms[1].text


def test_a_stranger_cannot_make_the_operator_believe_in_trouble_with_a_node() -> None:
    _, a, b = linked(secret=b"not the secret of this network")

    assert [alarm.about for alarm in b.alarms] == []
    assert [alarm.about for alarm in a.alarms] == ["b"]  # whom it has dialed itself
    b.dial("a")
    b.world.run()
    assert [alarm.about for alarm in a.alarms][1:] == []


def test_a_peer_that_breaks_the_protocol_ends_its_own_link_alone() -> None:
    world = World()
    a = world.start("a")
    world.start("b")
    c = world.start("c")
    a.dial("b")
    a.dial("c")
    world.run()

    number = a.link_to("c")
    a.links.on_broken(number, "a frame is too long", world.now)
    a.settle()
    world.run()

    assert a.peers == ["b"]
    assert c.up == {}
    assert "it closed the link: a frame is too long" in c.closed.values()
    assert [(alarm.code, alarm.about) for alarm in a.alarms] == [(AlarmCode.NODE_REFUSED, "c")]


def test_closing_tells_all_peers_why_and_dials_nobody_any_more() -> None:
    world, a, b = linked()
    b.dial("a")

    a.links.close("the node is stopping", world.now)
    a.settle()
    world.unreachable.add("a")
    world.run()
    dials = len(a.dials)
    a.dial("b")
    world.advance(20)

    assert a.up == b.up == {}
    assert "it closed the link: the node is stopping" in b.closed.values()
    assert len(a.dials) == dials
    assert DUPLICATE not in b.closed.values()


def test_what_is_for_a_link_that_is_over_is_let_go() -> None:
    world, a, _ = linked()
    number = a.link_to("b")
    world.kill("b")

    a.links.on_send(number, b"frame", urgent=False, now=world.now)
    a.links.on_hangup(number, world.now)
    a.links.on_payloads(number, [b"late"], world.now)
    a.links.on_closed(number, "", world.now)

    assert not [effect for effect in a.links.take_effects() if isinstance(effect, SendPayloads)]
    assert not a.links.on_connected(number, "", world.now)


def test_draws_follow_from_the_seed_and_do_not_repeat() -> None:
    one, other, third = Draws(b"seed"), Draws(b"seed"), Draws(b"another")

    drawn = [one.draw() for _ in range(100)]

    assert [other.draw() for _ in range(100)] == drawn
    assert len(set(drawn)) == 100
    assert third.draw() not in drawn


def test_what_a_peer_does_not_confirm_grows_old() -> None:
    world, a, _ = linked()

    def behind() -> float:
        return float(value_of(list(a.links.gauges()), LINK_BEHIND, node="b"))

    for _ in range(20):
        world.advance(0.5)
        assert behind() == 0
    world.cuts.add(("b", "a"))
    world.advance(1.2)

    assert behind() == 0.5
    world.advance(5)
    assert behind() == 0, "there is no link"


def test_who_is_missed_for_another_reason_is_told_of_again_but_not_all_the_time() -> None:
    world = World()
    a = world.start("a", 11)
    world.unreachable.add("b")
    a.dial("b")
    world.advance(10)
    assert [alarm.text.rpartition(": ")[2] for alarm in a.alarms] == ["connection refused"]

    world.unreachable.clear()
    world.start("b", 22)
    world.cuts |= {("a", "b"), ("b", "a")}  # it can be dialed, and says nothing
    world.advance(COMPLAINT_PERIOD / SECOND)

    assert codes(a) == [AlarmCode.NODE_UNREACHABLE] * 2
    assert "did not say who it is" in a.alarms[1].text


def test_a_dial_that_is_closed_without_a_word_was_refused() -> None:
    """A proxy takes it, and has nobody behind it."""
    world = World()
    world.hangs_up = True
    a = world.start("a")

    a.dial("b")
    world.advance(30)

    pauses = [(later - earlier) / SECOND for earlier, later in zip(a.dials, a.dials[1:], strict=False)]
    assert all(pause <= REDIAL_REFUSED / SECOND for pause in pauses)


def test_what_links_to_a_node_carry_counts_over_all_of_them_and_at_both_ends() -> None:
    world, a, b = linked()
    a.send("b", b"x" * 100)
    a.send("b", b"y" * 100_000, urgent=True)
    world.advance(2)
    a.links.on_hangup(a.link_to("b"), world.now)
    a.settle()
    world.advance(2)
    a.dial("b")
    world.advance(2)
    b.send("a", b"z")
    world.run()

    def told(node: LinkNode, family: Family, peer: str, direction: str) -> float:
        return value_of(list(node.links.gauges()), family, node=peer, direction=direction)

    assert [told(a, LINK_FRAMES, "b", direction) for direction in ("out", "in")] == [2, 1]
    assert [told(b, LINK_FRAMES, "a", direction) for direction in ("in", "out")] == [2, 1]
    assert 100_100 < told(a, LINK_BYTES, "b", "out") < 102_000
    assert told(b, LINK_BYTES, "a", "out") == told(a, LINK_BYTES, "b", "in")
    assert 0 <= value_of(list(a.links.gauges()), LINK_ROUND_TRIP, node="b") < 1
    assert 0 <= value_of(list(b.links.gauges()), LINK_ROUND_TRIP, node="a") < 1

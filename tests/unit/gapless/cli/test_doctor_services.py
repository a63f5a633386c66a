"""What `gapless doctor` says of who serves whom, and of who is passed by."""

from __future__ import annotations

from gapless import Gauge
from gapless.cli.doctor_services import NAMED_MAX, own_name, service_rows, services
from gapless.node.gauges import SERVING
from gapless_routing.delta.serving import BYPASSED_PUBENDS, CUT_PUBENDS, SERVED_PUBENDS

WELL = {
    "i": [SERVED_PUBENDS.gauge(2, "p", "p"), CUT_PUBENDS.gauge(0, "p")],
    "s": [SERVED_PUBENDS.gauge(2, "p", "i"), CUT_PUBENDS.gauge(0, "p")],
}
PAST = [SERVED_PUBENDS.gauge(2, "p", "p"), BYPASSED_PUBENDS.gauge(2, "p", "i"), CUT_PUBENDS.gauge(0, "p")]
NO_GAUGES: list[Gauge] = []


def test_a_row_says_who_serves_a_node_with_whose_pubends() -> None:
    assert service_rows(WELL) == [
        {"node": "i", "host": "p", "served_by": ["p"], "past": [], "pubends": 2, "cut": 0},
        {"node": "s", "host": "p", "served_by": ["i"], "past": [], "pubends": 2, "cut": 0},
    ]
    assert [*services(WELL)] == []


def test_under_a_router_that_says_nothing_of_it_there_is_no_row() -> None:
    assert service_rows({"p": [Gauge("gapless_router_links", (("broker", "i"),), 1, "")]}) == []


def test_who_is_passed_by_is_named_with_who_serves_instead() -> None:
    [found] = services({"s": PAST}, {"i"})

    assert service_rows({"s": PAST})[0]["past"] == ["i"]
    assert found == "node i is bypassed: s is served by p. Events go on past it. Start it"


def test_of_who_answers_it_is_said_what_else_it_may_be() -> None:
    [found] = services(WELL | {"s": PAST})

    assert found.endswith("If it runs, it has come back just now, or nothing comes to it either; else start it")


def test_whom_many_pass_by_is_one_finding_that_names_some() -> None:
    [found] = services({f"s{number}": PAST for number in range(NAMED_MAX + 3)})

    assert found.startswith("node i is bypassed: s0 is served by p, s1 is served by p, s2 is served by p, ")
    assert "s4 is served by p and 3 more. " in found
    assert "s5" not in found


def test_who_is_cut_off_is_named_with_what_does_not_come() -> None:
    cut = {name: [CUT_PUBENDS.gauge(3, "p")] for name in ("s", "t")}

    assert [row["cut"] for row in service_rows(cut)] == [3, 3]
    [found] = services(cut)
    assert found.startswith("nothing of the pubends of p comes to s and t: too many nodes in a row are away. ")
    [found] = services(cut, {"p", "i"})
    assert found.startswith("nothing of the pubends of p comes to s and t: it is away itself. Start it")


def test_nodes_that_are_counted_together_have_a_name() -> None:
    [row] = service_rows({"s": [SERVED_PUBENDS.gauge(9, "", "i"), SERVED_PUBENDS.gauge(1, "", "j")]})

    assert (row["host"], row["served_by"], row["pubends"]) == ("others", ["i", "j"], 10)


def test_a_node_says_its_name() -> None:
    assert own_name([*PAST, SERVING.gauge(1, "s")]) == "s"
    assert own_name(NO_GAUGES) == ""

"""What `gapless doctor --network` makes of what the nodes say."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gapless import AlarmInfo, BrokerStatus, Gauge, PubendInfo
from gapless.cli.doctor_network import (
    NetworkView,
    columns_of,
    findings_of,
    is_told_better,
    link_rows,
    node_rows,
    services_of,
    shb_rows,
    urls_of,
)
from gapless.core.alarms import AlarmCode
from gapless.core.gauges import Family
from gapless.core.network.facts import LINK_HIGH
from gapless.core.network.peers import LINK_BEHIND, LINK_UP, LINK_WAITING, LINKS_ENDED, NETWORK_MAP
from gapless.core.stream.ticks import SECOND, tick_at_time
from gapless.node.network import NetworkDescription, load_network
from gapless_routing.delta.serving import BYPASSED_PUBENDS, SERVED_PUBENDS
from unit.gapless.cli.conftest import Gapless

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
TICK = tick_at_time(NOON)
FILE = """
bundles = [["o", "m"], ["m", "e"]]
[network]
name = "flights"
[[node]]
name = "phb"
roles = ["phb"]
address = "127.0.0.1:7501"
cell = "o"
[[node]]
name = "ib"
address = "127.0.0.1:7502"
cell = "m"
options = { listen = [{ address = "127.0.0.1:7402" }, { address = "127.0.0.1:0" }] }
[[node]]
name = "shb"
roles = ["shb"]
address = "127.0.0.1:7503"
cell = "e"
"""
NEIGHBOURS = {"phb": ("ib",), "ib": ("phb", "shb"), "shb": ("ib",)}
SHB = "shb@1"


@pytest.fixture
def description(tmp_path: Path) -> NetworkDescription:
    path = tmp_path / "network.toml"
    path.write_text(FILE, "utf-8")
    return load_network(path)


Make = Callable[..., NetworkView]


@pytest.fixture
def view(description: NetworkDescription) -> NetworkView:
    """All nodes answer, all is well, and the SHB has what there is."""

    def gauges(node: str) -> list[Gauge]:
        found = [NETWORK_MAP.gauge(1, description.digest.hex())]
        for other in NEIGHBOURS[node]:
            found += [family.gauge(0, other) for family in (LINK_WAITING, LINK_BEHIND, LINKS_ENDED)]
            found.append(LINK_UP.gauge(1, other))
        if node == "shb":
            found += [Gauge("gapless_shb_head_ticks", (("pubend", "p@1"),), TICK, "")]
            found += [Gauge("gapless_shb_released_ticks", (("pubend", "p@1"),), TICK, "")]
        return found

    statuses = {node: BrokerStatus(tuple(gauges(node)), ()) for node in NEIGHBOURS}
    return NetworkView(description, "ib", statuses, pubends=[pubend()])


def pubend(**changes: Any) -> PubendInfo:
    fields: dict[str, Any] = {"shbs": (SHB,), "pinned_bytes": 2048, "node": "phb"} | changes
    return PubendInfo("p@1", ("#",), NOON, 0, TICK, TICK, TICK, 4096, 1, **fields)


def put(view: NetworkView, node: str, *gauges: Gauge) -> None:
    """A node shows other figures."""
    status = view.statuses[node]
    names = {(gauge.name, gauge.labels) for gauge in gauges}
    kept = [gauge for gauge in status.gauges if (gauge.name, gauge.labels) not in names]
    view.statuses[node] = BrokerStatus((*kept, *gauges), status.alarms)


def drop(view: NetworkView, node: str, family: Family, of: str | None = None) -> None:
    """A node does not show a figure."""
    status = view.statuses[node]
    kept = [
        each
        for each in status.gauges
        if each.name != family.name or (of is not None and dict(each.labels)["node"] != of)
    ]
    view.statuses[node] = BrokerStatus(tuple(kept), status.alarms)


def alarm(
    view: NetworkView,
    node: str,
    about: str,
    text: str,
    *,
    over: bool = False,
    code: AlarmCode = AlarmCode.NODE_UNREACHABLE,
    minute: int = 0,
) -> None:
    last = NOON.replace(minute=minute)
    raised = AlarmInfo(code.label, about, text, 1, NOON, last, over, code.meaning, code.remedy, code.lasts)
    status = view.statuses[node]
    view.statuses[node] = BrokerStatus(status.gauges, (*status.alarms, raised))


def silence(view: NetworkView, node: str) -> None:
    del view.statuses[node]
    view.silent[node] = f"node {node!r}: it has not answered for 3 s"


@pytest.mark.parametrize(
    ("standing", "columns"),
    [
        ('cell = "e"', ["node", "roles", "cell", "for nodes"]),
        ("", ["node", "roles", "for nodes"]),
        ('place = "3.1"', ["node", "roles", "place", "for nodes"]),
    ],
)
def test_where_nodes_stand_is_shown_if_they_stand_anywhere(tmp_path: Path, standing: str, columns: list[str]) -> None:
    path = tmp_path / "one.toml"
    path.write_text(f'[network]\nname = "n"\n[[node]]\nname = "a"\naddress = "127.0.0.1:1"\n{standing}\n', "utf-8")
    rows = node_rows(NetworkView(load_network(path), "a"))

    assert list(columns_of("nodes", rows).values())[:-2] == columns
    assert f"{rows[0]['cell']}{rows[0]['place']}" == standing.partition("= ")[2].strip('"')


def test_where_nothing_is_wrong_nothing_is_found(view: NetworkView) -> None:
    assert list(findings_of(view)) == []
    assert [row["same_map"] for row in node_rows(view)] == [True, True, True]
    assert [(row["from"], row["to"]) for row in link_rows(view)] == [
        ("ib", "phb"),
        ("phb", "ib"),
        ("ib", "shb"),
        ("shb", "ib"),
    ]
    [row] = shb_rows(view)
    assert (row["shb"], row["behind_seconds"], row["pins"], row["pinned_bytes"]) == (SHB, 0.0, True, 2048)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Connection refused", "See whether it runs"),
        ("it calls itself 'shb' and does not know the network's secret", "Give it the network's secret"),
        ("it closed the link: the certificate is of another node", "Give it its own certificate"),
        ("it is in the network 'x', not in 'flights'", "Give it this network's file"),
        ("it calls itself 'shb', which the map does not have", "Give all nodes the same network file"),
    ],
)
def test_a_node_that_is_silent_is_named_once_with_what_its_neighbours_say(
    view: NetworkView, said: str, advice: str
) -> None:
    silence(view, "shb")
    put(view, "ib", LINK_UP.gauge(0, "shb"))
    alarm(view, "ib", "shb", f"there is no link to the node 'shb' at 127.0.0.1:7503: {said}")

    node, waiting = findings_of(view)

    assert node.startswith(
        "node shb cannot be reached from ib: ib: there is no link to the node 'shb' at 127.0.0.1:7503"
    )
    assert said in node
    assert advice in node
    assert f"waits for SHB {SHB}, which cannot be reached, and keeps 2.0 KiB" in waiting
    assert f"gapless retire {SHB}" in waiting


def test_of_each_neighbour_the_latest_counts_and_what_several_say_is_said_once(view: NetworkView) -> None:
    silence(view, "shb")
    for node in ("ib", "phb"):
        alarm(view, node, "shb", "Connection refused")
        alarm(view, node, "shb", "it does not know the secret", code=AlarmCode.NODE_REFUSED, minute=5)

    finding = next(findings_of(view))

    assert "phb and ib: it does not know the secret. Give it the network's secret" in finding
    assert "Connection refused" not in finding
    for alarms in (view.statuses["ib"].alarms, view.statuses["phb"].alarms):
        assert all(is_told_better(view, "ib", each) for each in alarms)


def test_a_refusal_is_told_by_itself_unless_there_is_a_link_again(view: NetworkView) -> None:
    alarm(view, "ib", "shb", "it did not know the secret", code=AlarmCode.NODE_REFUSED)
    alarm(view, "ib", "", "somebody came", code=AlarmCode.NODE_REFUSED)
    known, stranger = view.statuses["ib"].alarms

    assert is_told_better(view, "ib", known)
    assert not is_told_better(view, "ib", stranger)
    put(view, "ib", LINK_UP.gauge(0, "shb"))
    assert not is_told_better(view, "ib", known)


def test_what_is_over_explains_nothing(view: NetworkView) -> None:
    silence(view, "shb")
    alarm(view, "ib", "shb", "there was no link", over=True)

    assert "it has not answered for 3 s" in next(findings_of(view))


def test_another_map_is_named(view: NetworkView) -> None:
    drop(view, "phb", NETWORK_MAP)
    put(view, "phb", NETWORK_MAP.gauge(1, "00"))

    [finding] = findings_of(view)

    assert finding.startswith("node phb was started with another network file than")
    assert "restart it" in finding


def test_a_link_that_is_down_at_both_ends_is_one_finding(view: NetworkView) -> None:
    put(view, "ib", LINK_UP.gauge(0, "phb"))
    put(view, "phb", LINK_UP.gauge(0, "ib"))
    alarm(view, "phb", "ib", "there is no link to the node 'ib': nothing was heard of it for 1.5 s")

    [finding] = findings_of(view)

    assert finding.startswith("there is no link between ib and phb, though both can be reached: phb says")
    assert "nothing was heard of it for 1.5 s" in finding
    assert "Look at what is between the two" in finding


def test_a_link_that_is_up_at_one_end_only_works_one_way(view: NetworkView) -> None:
    put(view, "ib", LINK_UP.gauge(0, "phb"))

    [finding] = findings_of(view)

    assert "works one way only, or has just gone down: phb has it, ib does not" in finding


def test_a_link_that_nobody_wants_is_not_missed(view: NetworkView) -> None:
    drop(view, "ib", LINK_UP, "phb")
    drop(view, "phb", LINK_UP, "ib")

    assert list(findings_of(view)) == []


def test_a_link_past_a_node_is_shown_and_so_is_who_serves_whom(view: NetworkView) -> None:
    silence(view, "ib")
    put(view, "shb", LINK_UP.gauge(1, "phb"), SERVED_PUBENDS.gauge(1, "phb", "phb"))
    put(view, "shb", BYPASSED_PUBENDS.gauge(1, "phb", "ib"))
    put(view, "phb", LINK_UP.gauge(1, "shb"))

    assert [(row["from"], row["to"]) for row in link_rows(view) if row["up"] and row["to"] != "ib"] == [
        ("phb", "shb"),
        ("shb", "phb"),
    ]
    assert [(row["node"], row["served_by"], row["past"]) for row in services_of(view)] == [("shb", ["phb"], ["ib"])]
    assert "node ib is bypassed: shb is served by phb. Events go on past it. Start it" in findings_of(view)


@pytest.mark.parametrize("gauge", [LINK_WAITING.gauge(LINK_HIGH + 1, "shb"), LINK_BEHIND.gauge(1.5, "shb")])
def test_a_slow_link_is_named_with_its_direction(view: NetworkView, gauge: Gauge) -> None:
    put(view, "ib", gauge)

    [finding] = findings_of(view)

    assert finding.startswith("the link from ib to shb is slow")


def test_an_shb_that_is_behind_is_named(view: NetworkView) -> None:
    put(view, "shb", Gauge("gapless_shb_head_ticks", (("pubend", "p@1"),), TICK - 75 * SECOND, ""))

    [finding] = findings_of(view)

    assert finding.startswith(f"SHB {SHB} is 1 min 15 s behind p@1")


def test_of_several_shbs_the_one_that_a_log_waits_for_is_marked(view: NetworkView) -> None:
    view.pubends = [pubend(shbs=(SHB, "gone@2"), holds=((SHB, TICK - SECOND, 512),))]

    rows = {row["shb"]: row for row in shb_rows(view)}
    [finding] = findings_of(view)

    assert (rows[SHB]["pins"], rows[SHB]["pinned_bytes"]) == (True, 2048)
    assert (rows["gone@2"]["pins"], rows["gone@2"]["answers"]) == (True, False)
    assert "has no such node: if it is gone for good, give it up with `gapless retire gone@2`" in finding


def test_who_has_left_something_out_is_named(view: NetworkView) -> None:
    view.refusals["phb"] = "alice may not list pubends"

    [finding] = findings_of(view)

    assert "node phb has left out of a listing what it has: alice may not list pubends" in finding


def test_the_file_says_where_clients_connect(description: NetworkDescription) -> None:
    assert urls_of(description) == "gapless://127.0.0.1:7402"


def test_a_file_that_is_wrong_and_two_things_to_look_at_are_refused(gapless: Gapless, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[network]\n", "utf-8")

    assert "network.name" in gapless("doctor", "--network", str(path), status=2).stderr
    both = gapless("doctor", "--network", str(path), "--config", str(path), status=2)
    assert "name one of them" in both.stderr


def test_where_nobody_can_be_asked_that_is_the_finding(gapless: Gapless, description: NetworkDescription) -> None:
    said = gapless("doctor", "--network", str(description.path), "--url", "gapless://127.0.0.1:1", "--json", status=1)

    [finding] = json.loads(said.stdout)["findings"]
    assert "no node of the network can be asked" in finding

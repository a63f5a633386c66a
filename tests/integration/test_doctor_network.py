"""`gapless doctor --network` in front of real nodes, between which everything goes through proxies that break it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.cli.doctor import Examination, examine_network
from gapless.core.alarms import AlarmCode
from gapless.node.network import load_network
from integration.broker_process import bounded, until
from integration.networks_in_process import TestNetwork, network_of

pytestmark = pytest.mark.timeout(60)
NO_FINDING: list[str] = []


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """A PHB, an IB and an SHB in a row, with the router of networks; none of them is started."""
    async with network_of(tmp_path, "phb", "ib", "shb") as network:
        network.network["router"] = "knowledge"
        yield network


async def examined(network: TestNetwork, at: str) -> Examination:
    """What the doctor sees through a node."""
    examination = Examination()
    description = load_network(network.directory / "network.toml")
    await bounded(examine_network(examination, description, network.nodes[at].url, 15.0, None))
    return examination


async def until_linked(network: TestNetwork) -> None:
    await network.until_linked("phb", "ib")
    await network.until_linked("ib", "shb")


async def until_alarmed(network: TestNetwork, at: str, code: AlarmCode) -> None:
    await until(lambda: code.label in network.alarms(at), f"{code.label} at {at}", 20)


def row(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    [found] = [each for each in rows if wanted.items() <= each.items()]
    return found


async def test_where_all_is_well_it_says_so_of_every_node_link_and_shb(network: TestNetwork) -> None:
    await network.start_all()
    await until_linked(network)
    async with gapless.connect(network.nodes["shb"].url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", start="earliest") as subscription:
            await bounded(session.publisher("t", name="loader").send(b""))
            await bounded(anext(subscription))

            for at in ("ib", "shb"):
                seen = await examined(network, at)

                assert seen.findings == NO_FINDING
                assert [node["answers"] for node in seen.network["nodes"]] == [True, True, True]
                assert [node["same_map"] for node in seen.network["nodes"]] == [True, True, True]
                links = [(end["from"], end["to"], end["up"]) for end in seen.network["links"]]
                assert sorted(links) == [
                    ("ib", "phb", True),
                    ("ib", "shb", True),
                    ("phb", "ib", True),
                    ("shb", "ib", True),
                ]
                [shb] = seen.network["shbs"]
                assert (shb["shb"].partition("@")[0], shb["answers"]) == ("shb", True)
                assert shb["behind_seconds"] < 10
                assert seen.facts["network"]["asked"] == at


async def test_a_node_that_is_gone_is_named_with_what_its_neighbours_say(network: TestNetwork) -> None:
    await network.start_all()
    await until_linked(network)
    async with gapless.connect(network.nodes["shb"].url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", start="earliest"):
            await bounded(session.publisher("t", name="loader").send(b""))
    await network.stop("shb")
    await until_alarmed(network, "ib", AlarmCode.NODE_UNREACHABLE)

    seen = await examined(network, "phb")

    silent, waiting = seen.findings
    assert silent.startswith("node shb cannot be reached from phb: ib: there is no link to the node 'shb'")
    assert "See whether it runs" in silent
    assert "waits for SHB shb@" in waiting
    assert "gapless retire shb@" in waiting
    assert row(seen.network["nodes"], node="shb")["answers"] is False


async def test_a_node_with_another_secret_is_named(network: TestNetwork) -> None:
    path = network.write()
    await network.start("phb", path)
    await network.start("ib", path)
    await network.start("shb", network.write("other.toml", secret="another secret of some length"))
    await until_alarmed(network, "ib", AlarmCode.NODE_UNREACHABLE)

    seen = await examined(network, "phb")

    assert any(
        finding.startswith("node shb cannot be reached from phb") and "Give it the network's secret" in finding
        for finding in seen.findings
    ), seen.findings


async def test_a_node_with_another_map_is_named(network: TestNetwork) -> None:
    path = network.write()
    text = path.read_text("utf-8")
    older = network.directory / "older.toml"
    more = '\n[[node]]\nname = "shb2"\nroles = ["shb"]\naddress = "127.0.0.1:9"\ncell = "shb2"\n'
    older.write_text(text.replace("bundles = [", "bundles = [['ib', 'shb2'], ") + more, "utf-8")
    await network.start("phb", path)
    await network.start("ib", path)
    await network.start("shb", older)
    await until_linked(network)

    seen = await examined(network, "phb")

    [finding] = seen.findings
    assert finding.startswith("node shb was started with another network file than")
    assert [node["same_map"] for node in seen.network["nodes"]] == [True, True, False]


async def test_a_link_that_carries_nothing_is_named_where_both_ends_can_be_reached(tmp_path: Path) -> None:
    """By another way: a third node has links to both."""
    async with network_of(tmp_path, "phb", "ib", "shb") as network:
        network.network["router"] = "hostile"  # a full mesh
        await network.start_all()
        for one, other in (("phb", "ib"), ("phb", "shb"), ("ib", "shb")):
            await network.until_linked(one, other)
        for name in ("phb", "ib"):  # whoever of the two dials the other; each has dialed the SHB
            network.proxies[name].inward.swallows = True
        await network.until_linked("phb", "ib", linked=False)
        await until_alarmed(network, "ib", AlarmCode.NODE_UNREACHABLE)

        seen = await examined(network, "shb")

    [finding] = seen.findings
    assert finding.startswith("there is no link between ib and phb, though both can be reached: ")
    assert "there is no link to the node 'phb'" in finding


async def test_a_network_that_cannot_be_asked_is_a_finding(network: TestNetwork) -> None:
    network.write()
    examination = Examination()
    description = load_network(network.directory / "network.toml")
    await bounded(examine_network(examination, description, "gapless://127.0.0.1:1", 1.0, None))

    [finding] = examination.findings
    assert "no node of the network can be asked" in finding
    assert "--url" in finding

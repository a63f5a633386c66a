"""Links between real nodes over TCP on loopback: who gets one, when it is over, and what the operators hear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

import gapless
from gapless import plugins
from gapless.core.gauges import value_of
from gapless.core.network.facts import LinkUp, Undial, Wake
from gapless.core.network.peers import LINK_WAITING, LINKS_ENDED
from gapless.core.network.seam import Effects, Router, RouterBase, RouterContext
from gapless.core.wire.framing import encode_frame
from integration.broker_process import BrokerProcess, bounded, to_toml, until
from integration.networks_in_process import TestNetwork, free_addresses, network_of

SECOND = 1_000_000_000


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """A PHB, an IB and an SHB; none of them is started."""
    async with network_of(tmp_path, "phb", "ib", "shb") as network:
        yield network


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """A PHB and an SHB; neither is started."""
    async with network_of(tmp_path, "phb", "shb") as network:
        yield network


async def test_an_event_published_at_one_node_reaches_a_subscription_at_another(network: TestNetwork) -> None:
    await network.start_all()
    for one, other in (("phb", "ib"), ("phb", "shb"), ("ib", "shb")):
        await network.until_linked(one, other)

    async with (
        gapless.connect(network.nodes["shb"].url) as reader,
        gapless.connect(network.nodes["ib"].url) as writer,
        reader.session() as reading,
        writer.session() as writing,
        reading.subscribe("t", name="all") as subscription,
    ):
        publisher = writing.publisher("t", name="loader")
        for number in range(100):
            await bounded(publisher.send(b"%d" % number))
        events = [await bounded(anext(subscription)) for _ in range(100)]

    assert [event.body for event in events] == [b"%d" % number for number in range(100)]


async def test_a_publisher_finds_the_phb_that_takes_its_name_from_any_node(tmp_path: Path) -> None:
    async with network_of(tmp_path, "phb", "ib", "phb2") as network:
        network.network["router"] = "knowledge"
        for phb, names in (("phb", "loader-*"), ("phb2", "audit-*")):
            await network.start(phb, phb={"pubends": [{"name": f"of-{phb}", "publishers": [names]}]})
        await network.start("ib")
        await network.until_linked("phb", "ib")
        await network.until_linked("phb2", "ib")

        async with gapless.connect(network.nodes["ib"].url) as connection, connection.session() as session:
            receipts = {
                name: await bounded(session.publisher("t", name=name).send(b""))
                for name in ("loader-1", "loader-2", "audit-1", "audit-2")
            }
            with pytest.raises(gapless.PublishRejectedError, match="from publisher 'stranger'"):
                await bounded(session.publisher("t", name="stranger").send(b""))

    assert {name: receipt.pubend.partition("@")[0] for name, receipt in receipts.items()} == {
        "loader-1": "of-phb",
        "loader-2": "of-phb",
        "audit-1": "of-phb2",
        "audit-2": "of-phb2",
    }


async def test_large_events_go_through_a_link(pair: TestNetwork) -> None:
    await pair.start_all()
    await pair.until_linked("phb", "shb")
    body = bytes(range(256)) * 3900

    async with (
        gapless.connect(pair.nodes["shb"].url) as reader,
        gapless.connect(pair.nodes["phb"].url) as writer,
        reader.session() as reading,
        writer.session() as writing,
        reading.subscribe("t", name="all") as subscription,
    ):
        publisher = writing.publisher("t", name="loader")
        for _ in range(5):
            await bounded(publisher.send(body))
        events = [await bounded(anext(subscription)) for _ in range(5)]

    assert [event.body for event in events] == [body] * 5


async def test_crossing_dials_end_with_one_link(pair: TestNetwork) -> None:
    """Both routers dial, and dial again every two seconds as long as there is no link."""
    await pair.start_all()
    await pair.until_linked("phb", "shb")
    before = _ended(pair)

    for proxy in pair.proxies.values():  # both notice at once, and both dial again
        proxy.cut()
    await until(lambda: _ended(pair) > before, "the link to break")
    await pair.until_linked("phb", "shb")
    dials = sum(proxy.connections for proxy in pair.proxies.values())
    async with gapless.connect(pair.nodes["shb"].url) as reader, reader.session() as session:
        async with session.subscribe("t", name="all", silence=True) as subscription:
            for _ in range(3):  # a second each
                await bounded(anext(subscription))

    assert sum(proxy.connections for proxy in pair.proxies.values()) == dials
    assert pair.is_linked("phb", "shb")
    assert pair.is_linked("shb", "phb")
    assert pair.alarms("phb") == pair.alarms("shb") == {}


@pytest.mark.parametrize(
    ("different", "told"),
    [
        ({"secret": "another secret, as long"}, "does not know the network's secret"),
        ({"name": "trains"}, "it closed the link: this node is in another network"),
    ],
    ids=["secret", "network"],
)
async def test_a_node_of_another_network_gets_no_link(pair: TestNetwork, different: dict[str, str], told: str) -> None:
    await pair.start("phb")
    await pair.start("shb", pair.write("other.toml", **different))

    def both_told() -> bool:
        alarms = [pair.alarms(name) for name in ("phb", "shb")]
        return all("node_refused" in of_one and told in str(of_one.get("node_unreachable")) for of_one in alarms)

    await until(both_told, "both operators to be told why there is no link")

    assert not pair.is_linked("phb", "shb")
    assert not pair.is_linked("shb", "phb")


def _ended(pair: TestNetwork) -> float:
    """How many links and dials are over, at both ends together."""
    peers = {"phb": "shb", "shb": "phb"}
    return sum(value_of(list(pair.nodes[name].gauges()), LINKS_ENDED, node=peer) for name, peer in peers.items())


def certificates(directory: Path, *names: str) -> dict[str, str]:
    """An authority, and a certificate for each node of these names; the `tls` of a network file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    for name in names:
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(str(directory / f"{name}.pem"))
    return {"certificate": "{node}.pem", "ca": "ca.pem"}


async def test_nodes_with_certificates_need_no_secret(pair: TestNetwork) -> None:
    pair.tls = certificates(pair.directory, "phb", "shb")
    pair.network.pop("secret")

    await pair.start_all()

    await pair.until_linked("phb", "shb")


async def test_nodes_get_another_authority_and_no_link_ends(pair: TestNetwork) -> None:
    """All trust both for a while; each next link is made with what the files are then."""
    pair.tls = certificates(pair.directory, "phb", "shb")
    former = (pair.directory / "ca.pem").read_bytes()
    await pair.start_all()
    await pair.until_linked("phb", "shb")
    ended = _ended(pair)

    certificates(pair.directory, "phb", "shb")
    ca = pair.directory / "ca.pem"
    later = ca.read_bytes()
    ca.write_bytes(former + later)
    await until_read(pair)

    assert _ended(pair) == ended
    await until_linked_anew(pair)
    ca.write_bytes(later)
    await until_read(pair)
    await until_linked_anew(pair)
    assert pair.alarms("phb").keys() | pair.alarms("shb").keys() == set()


async def test_files_of_certificates_that_do_not_fit_are_an_alarm_at_their_node(pair: TestNetwork) -> None:
    """Links are made on with what they were before."""
    pair.tls = certificates(pair.directory, "phb", "shb")
    await pair.start_all()
    await pair.until_linked("phb", "shb")

    whole = (pair.directory / "phb.pem").read_bytes()
    (pair.directory / "phb.pem").write_bytes(whole[:300])
    await until(lambda: "certificate_unusable" in pair.alarms("phb"), "the alarm")

    assert "certificate_unusable" not in pair.alarms("shb")
    await until_linked_anew(pair)
    (pair.directory / "phb.pem").write_bytes(whole)
    await until(lambda: "certificate_unusable" not in pair.alarms("phb"), "the end of the alarm")


async def until_read(pair: TestNetwork) -> None:
    """Waits until each node has read its files as they are now."""

    def all_read() -> bool:
        transports = [node._loaded.nodes_transport for node in pair.nodes.values()]
        return all(files.are_used_as_they_are for each in transports for files in each.tls_files)  # type: ignore[union-attr]

    await until(all_read, "the nodes to read their files")


async def until_linked_anew(pair: TestNetwork) -> None:
    """Breaks the link, and waits for another one."""
    before = sum(proxy.connections for proxy in pair.proxies.values())
    for proxy in pair.proxies.values():
        proxy.cut()
    await until(lambda: sum(proxy.connections for proxy in pair.proxies.values()) > before, "another dial")
    await pair.until_linked("phb", "shb")


async def test_a_node_that_calls_itself_another_is_found_out_by_its_certificate(pair: TestNetwork) -> None:
    pair.tls = certificates(pair.directory, "phb", "shb")
    await pair.start("phb")
    (pair.directory / "shb.pem").write_bytes((pair.directory / "phb.pem").read_bytes())

    await pair.start("shb")

    expected = "it calls itself 'shb', and its certificate is of 'phb'"
    await until(lambda: expected in str(pair.alarms("phb")), "the impostor to be found out")
    assert not pair.is_linked("phb", "shb")
    assert not pair.is_linked("shb", "phb")


@pytest.mark.parametrize("way", ["inward", "outward"])
async def test_a_link_on_which_one_direction_is_lost_is_over_at_both_ends(pair: TestNetwork, way: str) -> None:
    await pair.start_all()
    await pair.until_linked("phb", "shb")

    for proxy in pair.proxies.values():
        getattr(proxy, way).swallows = True
    await pair.until_linked("phb", "shb", linked=False)
    for proxy in pair.proxies.values():
        getattr(proxy, way).swallows = False

    await pair.until_linked("phb", "shb")


async def test_a_link_that_breaks_comes_back(pair: TestNetwork) -> None:
    await pair.start_all()
    await pair.until_linked("phb", "shb")
    before = sum(proxy.connections for proxy in pair.proxies.values())

    for proxy in pair.proxies.values():
        proxy.cut()
    await until(lambda: sum(proxy.connections for proxy in pair.proxies.values()) > before, "another dial")

    await pair.until_linked("phb", "shb")


class LetsGo(RouterBase):
    """Some time after its first link it lets go of the peer; a while later it notes that it has done so for long."""

    def __init__(self, routers: list[LetsGo]) -> None:
        self.peer = ""
        self._routers = routers
        self._due: list[int] = []
        self.has_let_go_for_long = False

    def start(self, now: int, context: RouterContext) -> Effects:
        self._routers.append(self)
        return ()

    def link_up(self, now: int, up: LinkUp) -> Effects:
        if not self.peer:
            self.peer, self._due = up.peer, [now + SECOND // 2, now + 2 * SECOND]
        return ()

    def next_wake(self) -> int | None:
        return self._due[0] if self._due else None

    def wake(self, now: int, _: Wake) -> Effects:
        self._due.pop(0)
        self.has_let_go_for_long = not self._due
        return [Undial(self.peer)] if self._due else ()


async def test_a_link_that_neither_router_wishes_for_is_closed_and_not_dialed_again(
    pair: TestNetwork,
) -> None:
    """Both nodes have dialed it, as the map has it."""
    routers: list[LetsGo] = []

    def open_routing(options: Mapping[str, Any]) -> Router:
        return LetsGo(routers)

    plugins.add("routing", "lets_go", SimpleNamespace(open_routing=plugins.hookimpl(open_routing)))
    pair.network["router"] = "lets_go"
    await pair.start_all()
    await pair.until_linked("phb", "shb")

    await pair.until_linked("phb", "shb", linked=False)
    dials = sum(proxy.connections for proxy in pair.proxies.values())
    await until(lambda: all(router.has_let_go_for_long for router in routers), "both to have let go for long")

    assert sum(proxy.connections for proxy in pair.proxies.values()) == dials
    assert not pair.is_linked("phb", "shb")
    assert not pair.is_linked("shb", "phb")
    assert pair.alarms("phb") == pair.alarms("shb") == {}


async def test_a_peer_that_restarts_is_linked_as_another_process(pair: TestNetwork) -> None:
    await pair.start_all()
    await pair.until_linked("phb", "shb")
    await pair.stop("shb")
    await until(lambda: not pair.is_linked("phb", "shb"), "the link to go down")

    await pair.start("shb")

    await pair.until_linked("phb", "shb")
    assert "node_refused" not in pair.alarms("phb")


async def test_what_waits_on_a_link_is_seen_and_what_left_is_not(pair: TestNetwork) -> None:
    await pair.start_all()
    await pair.until_linked("phb", "shb")

    def waiting() -> float:
        return value_of(list(pair.nodes["phb"].gauges()), LINK_WAITING, node="shb")

    async with (
        gapless.connect(pair.nodes["shb"].url) as reader,
        gapless.connect(pair.nodes["phb"].url) as writer,
        reader.session() as reading,
        writer.session() as writing,
        reading.subscribe("t", name="all") as subscription,
    ):
        publisher = writing.publisher("t", name="loader")
        await bounded(publisher.send(b"first"))
        await bounded(anext(subscription))
        for proxy in pair.proxies.values():
            proxy.inward.is_open.clear()
        for _ in range(12):
            await bounded(publisher.send(bytes(900_000)))
        seen = waiting()
        for proxy in pair.proxies.values():
            proxy.inward.is_open.set()
        for _ in range(12):
            assert len((await bounded(anext(subscription))).body) == 900_000

    # Whichever of the two has dialed, one direction of its connection was stalled: this one, or that of the reports.
    assert seen > 1 << 20
    await until(lambda: waiting() == 0, "nothing to wait any more")


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x00" * 100,
        b"\xff" * 100,
        encode_frame(b"hello"),
        encode_frame(b"\x00" * 9 + b"\x91\x01"),
        encode_frame(b"\x02" + b"\x00" * 8 + b"a frame of a router"),
        encode_frame(b"\x00" * 4096)[:2000],
    ],
    ids=["http", "zeros", "ones", "text", "message", "frame", "half"],
)
async def test_a_stranger_who_says_garbage_is_sent_away_and_harms_no_link(pair: TestNetwork, garbage: bytes) -> None:
    await pair.start_all()
    await pair.until_linked("phb", "shb")
    before = pair.proxies["shb"].connections, pair.proxies["phb"].connections
    host, _, port = pair.nodes["phb"].nodes_address.rpartition(":")

    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(garbage)
    answer = await bounded(reader.read())
    writer.close()
    await writer.wait_closed()

    assert len(answer) < 500  # to HTTP, a sentence in HTTP
    assert b"flights" not in answer
    assert pair.is_linked("phb", "shb")
    assert (pair.proxies["shb"].connections, pair.proxies["phb"].connections) == before
    assert [text for text in pair.alarms("phb").get("node_refused", []) if "somebody at 127.0.0.1" not in text] == []


async def test_a_node_without_a_network_says_nothing_of_one(tmp_path: Path) -> None:
    async with network_of(tmp_path, "phb") as network:
        await network.start("phb")
        assert network.nodes["phb"].nodes_address.startswith("127.0.0.1:")


HOSTILE = (
    "-c",
    (
        "from gapless import plugins; from gapless_sim import hostile; plugins.add('routing', 'hostile', hostile);"
        " from gapless.cli.app import app; app()"
    ),
)
"""The command line, in a process that knows the simulator's router."""


@pytest.mark.timeout(180)
async def test_processes_that_are_killed_find_each_other_again_and_nothing_is_lost(tmp_path: Path) -> None:
    addresses = dict(zip(("phb", "shb"), free_addresses(2), strict=True))
    nodes = [{"name": name, "roles": [name], "address": address, "cell": name} for name, address in addresses.items()]
    network = {"name": "flights", "secret": "a secret of some length", "router": "hostile"}
    (tmp_path / "network.toml").write_text(
        f'bundles = [["phb", "shb"]]\n{to_toml({"network": network, "node": nodes})}', "utf-8"
    )
    brokers = {
        name: BrokerProcess(tmp_path / name, program=HOSTILE, network={"file": "../network.toml", "node": name})
        for name in addresses
    }
    received: list[bytes] = []

    async with brokers["phb"] as phb, brokers["shb"] as shb:
        async with gapless.connect(shb.url) as reader, reader.session() as reading:
            async with reading.subscribe("t", name="all") as subscription:
                token = subscription.token
        for killed in (shb, phb, shb):
            async with (
                gapless.connect(phb.url) as writer,
                gapless.connect(shb.url) as reader,
                writer.session() as writing,
                reader.session() as reading,
                reading.subscribe("t", name="all", start=token) as subscription,
            ):
                publisher = writing.publisher("t", name="loader")
                begun = (await bounded(publisher.recover(), LONG)).sequence
                receiving = asyncio.ensure_future(_take(subscription, received, begun + 200))
                for number in range(begun, begun + 100):
                    await bounded(publisher.send(b"%d" % number), LONG)
                await killed.restart()
                for number in range(begun + 100, begun + 200):
                    await bounded(publisher.send(b"%d" % number), LONG)
                await bounded(receiving, LONG)
                token = subscription.token

    assert received == [b"%d" % number for number in range(600)]


LONG = 50.0
"""Seconds, with two starts of a process in them."""


async def _take(subscription: AsyncIterator[gapless.Event], received: list[bytes], count: int) -> None:
    """Receives until there are so many."""
    while len(received) < count:
        received.append((await anext(subscription)).body)

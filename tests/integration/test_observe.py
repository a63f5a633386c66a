"""A broker as tools see it over HTTP: figures that Prometheus reads, health through its whole life, and bad input."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import gapless
from gapless.node.config import load_config
from gapless.node.machine import Machine
from gapless.node.node import Node
from gapless_testing.ports import free_ports
from integration.broker_process import BrokerProcess, bounded
from integration.networks_in_process import network_of
from integration.nodes_in_process import running_node

NAMES = ['with "quotes"', "back\\slash \\n", "ü" * 127 + "x", "\U0001f600" * 63, "{le=}, 1"]
"""Names of subscriptions; the third has 255 bytes. What cannot be printed is in no name."""
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with running_node(observe={"address": "127.0.0.1:0"}) as node:
        yield node


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=20) as client:
        yield client


def parsed(text: str, *, openmetrics: bool) -> list[Metric]:
    return list((parse_openmetrics if openmetrics else parse_text)(text))


def series_of(families: list[Metric]) -> Series:
    """Each series once."""
    found = [((row.name, tuple(sorted(row.labels.items()))), row.value) for each in families for row in each.samples]
    assert len(dict(found)) == len(found)
    return dict(found)


async def scraped(client: httpx.AsyncClient, url: str) -> Series:
    """What a scrape has, in both formats: they say the same, and each has its help and its type."""
    text, openmetrics = [(await client.get(f"{url}/metrics", headers=sent)).text for sent in ({}, OPENMETRICS)]
    families = parsed(text, openmetrics=False)
    found = series_of(families)
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert [family.name for family in families] == sorted(family.name for family in families)
    assert series_of(parsed(openmetrics, openmetrics=True)).keys() == found.keys()
    return found


def is_counter(name: str) -> bool:
    """Whether a series only grows: of all histograms one says how things stand."""
    return name.endswith(("_total", "_bucket", "_count")) and not name.startswith("gapless_subscription_behind_seconds")


async def test_each_scrape_is_read_by_prometheus_and_counters_only_grow(
    tmp_path: Path, client: httpx.AsyncClient
) -> None:
    before: Series = {}
    async with (
        BrokerProcess(tmp_path, observe={"address": "127.0.0.1:0"}) as broker,
        gapless.connect(broker.url, client_id='a "b"') as connection,
        connection.session() as session,
    ):
        publisher = session.publisher("t")
        for name in NAMES:
            async with session.subscribe("t", name=name):
                await publisher.send(name.encode())
        for _ in range(2):
            await publisher.send(b"x")
            now = await scraped(client, broker.observe)
            counters = {key for key in before if is_counter(key[0])}
            assert {key: (before[key], now[key]) for key in counters if before[key] > now[key]} == {}
            before = now
            await asyncio.sleep(1.01)
        said = await connection.status()

    named = {value for _, labels in before for _, value in labels}
    assert named & set(NAMES)
    assert 'a "b"' in named
    assert before["gapless_node_serving", (("node", "broker"),)] == 1
    assert {name for name, _ in before} == {gauge.name for gauge in said.gauges}


async def test_status_is_what_a_connection_is_told(node: Node, client: httpx.AsyncClient) -> None:
    async with gapless.connect(node.url) as connection:
        said = await connection.status()
        told = (await client.get(f"{node.observe_url}/status")).json()

    assert (told["node"], told["phase"], told["unready"]) == ("broker", "serving", "")
    assert [(row["name"], row["labels"]) for row in told["gauges"]] == [
        (gauge.name, dict(gauge.labels)) for gauge in said.gauges
    ]
    assert [alarm["code"] for alarm in told["alarms"]] == [alarm.code for alarm in said.alarms]


SLOW = (
    "import time\n"
    "from gapless.cli import main\n"
    "from gapless.node import node\n"
    "open_volume = node.open_volume\n"
    "def slowly(*arguments):\n"
    "    time.sleep(1)\n"
    "    return open_volume(*arguments)\n"
    "node.open_volume = slowly\n"
    "main()\n"
)
"""A broker whose loop stands for a second while it opens its volume."""


async def test_a_broker_that_begins_is_alive_and_not_ready(tmp_path: Path, client: httpx.AsyncClient) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    broker = BrokerProcess(tmp_path, program=("-c", SLOW), observe={"address": url.removeprefix("http://")})
    starting = asyncio.create_task(broker.start())
    try:
        seen = set()
        while not starting.done():
            try:
                alive, ready = await client.get(f"{url}/livez"), await client.get(f"{url}/readyz")
                figures = await scraped(client, url)
            except httpx.ConnectError:
                await asyncio.sleep(0.05)
                continue
            seen.add((alive.status_code, ready.status_code, ready.text, figures["gapless_node_serving", LABELS]))
        await starting
        await until_ready(client, url)
        assert (200, 503, "starting\n", 0) in seen
        assert {alive for alive, *_ in seen} == {200}
        assert (await client.get(f"{url}/livez")).text == "ok\n"
        assert broker.observe == url
    finally:
        await asyncio.wait([starting])
        await broker.kill()


LABELS = (("node", "broker"),)


async def until_ready(client: httpx.AsyncClient, url: str) -> None:
    for _ in range(500):
        if (await client.get(f"{url}/readyz")).status_code == 200:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not become ready")


def fail_storage(node: Node) -> None:
    machine: Machine = vars(node)["_shell"].machine
    machine.fail(gapless.StorageError("the disk is gone"))


async def test_a_broker_that_recovers_says_why(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its storage has failed, and is opened again after a while."""
    monkeypatch.setattr("gapless.node.node.PAUSE_FIRST", 0.4)
    async with running_node(observe={"address": "127.0.0.1:0"}) as node:
        url = node.observe_url
        fail_storage(node)
        ready = await client.get(f"{url}/readyz")
        alive = await client.get(f"{url}/livez")
        told = (await client.get(f"{url}/status")).json()
        await until_ready(client, url)

    assert (ready.status_code, ready.text) == (503, "recovering: the disk is gone\n")
    assert alive.status_code == 200
    assert [alarm["code"] for alarm in told["alarms"]] == ["storage_failed"]
    with pytest.raises(httpx.ConnectError):
        await client.get(f"{url}/livez")


async def test_a_node_that_needs_others_is_not_ready_alone(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with network_of(tmp_path, "phb", "shb") as network:
        phb, shb = [await network.start(name, observe={"address": "127.0.0.1:0"}) for name in ("phb", "shb")]
        await network.until_linked("phb", "shb")
        await until_ready(client, shb.observe_url)
        await network.stop("shb")
        assert (await client.get(f"{phb.observe_url}/readyz")).status_code == 200, "it takes events all the same"
        await network.stop("phb")
        shb = await network.start("shb", observe={"address": "127.0.0.1:0"})
        await asyncio.sleep(0.05)
        alone = await client.get(f"{shb.observe_url}/readyz")
        assert (await client.get(f"{shb.observe_url}/livez")).status_code == 200

    assert (alone.status_code, alone.text) == (503, "it has no link to any other node of its network\n")


async def test_a_loop_that_stands_is_told(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.observe.health.TURNS_WITHIN", 0.3)
    monkeypatch.setattr("gapless.observe.http.LOOK_EVERY", 0.1)
    async with running_node(observe={"address": "127.0.0.1:0"}) as node:
        url = node.observe_url

        def ask() -> list[httpx.Response]:
            time.sleep(0.8)
            return [httpx.get(f"{url}{path}") for path in ("/livez", "/readyz")]

        asked = asyncio.get_running_loop().run_in_executor(None, ask)
        time.sleep(1.2)  # noqa: ASYNC251 - the loop stands
        standing = await asked
        await asyncio.sleep(0.3)
        well = await client.get(f"{url}/livez")

    assert [answer.status_code for answer in standing] == [503, 503]
    assert "has not turned for" in standing[0].text
    assert well.status_code == 200


async def test_bad_requests_are_told_what_they_reached(
    node: Node, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    url = node.observe_url
    absent, posted = await client.get(f"{url}/metric"), await client.post(f"{url}/metrics", content=b"x" * (1 << 20))
    huge = await client.get(f"{url}/metrics", headers={"x": "x" * (1 << 20)})

    assert (absent.status_code, posted.status_code, huge.status_code) == (404, 405, 400)
    assert "/metrics" in absent.text
    assert "read (GET)" in posted.text
    with pytest.raises(gapless.ConfigurationError, match=r"is an HTTP server.* 7400 by default"):
        await bounded(gapless.connect(f"gapless://{url.removeprefix('http://')}"))
    native = await client.get(node.url.replace("gapless://", "http://"))
    assert native.status_code == 400
    assert "native port" in native.text
    assert "[observe]" in native.text
    assert [record.name for record in caplog.records if record.name.startswith("uvicorn")] == []


async def test_a_hundred_at_once_and_some_that_hang(node: Node, client: httpx.AsyncClient) -> None:
    host, _, port = node.observe_url.removeprefix("http://").rpartition(":")
    hanging = [await asyncio.open_connection(host, int(port)) for _ in range(50)]
    for number, (_, writer) in enumerate(hanging):
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n" + (b"\r\n" if number % 2 else b""))

    answers = await bounded(asyncio.gather(*(client.get(f"{node.observe_url}/metrics") for _ in range(100))))

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) <= 2, "one snapshot for all who ask within a second"
    async with gapless.connect(node.url) as connection, connection.session() as session:
        await bounded(session.publisher("t").send(b"x"))
    for _, writer in hanging:
        writer.close()


WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    "the native address": (
        '[[listen]]\naddress = "127.0.0.1:7400"\n[observe]\naddress = "127.0.0.1:7400"',
        ("observe: address", "listen.0", "one of its own"),
    ),
    "beyond loopback": (
        '[observe]\naddress = "0.0.0.0:0"',
        ("observe: ", "reached from other machines", "TLS", "insecure = true"),
    ),
    "no port": ('[observe]\naddress = "127.0.0.1"', ("observe: ", "does not end in a port")),
    "nobody judges": (
        '[observe]\nauth = ["token"]',
        ("observe: auth: there is no [[auth]] with the plugin 'token'",),
    ),
    "no certificate": ('[observe]\ncertificate = "nowhere.pem"', ("observe: ", "nowhere.pem")),
    "an unknown key": ("[observe]\nport = 1", ("there is no key 'observe.port'",)),
    "passwords": (
        '[auth]\nplugin = "scram"\n[observe]\nauth = ["scram"]',
        ("observe: auth: nobody could look", "`token`", "`certificate`"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_setting_starts_nothing(tmp_path: Path, name: str) -> None:
    text, fragments = WRONG[name]
    path = tmp_path / "gapless.toml"
    path.write_text(f"[storage]\nplugin = 'memory'\n{text}", "utf-8")

    with pytest.raises(gapless.ConfigurationError) as raised:
        await Node.start(load_config(path, create=True))

    assert [fragment for fragment in fragments if fragment not in str(raised.value)] == [], str(raised.value)


async def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    """And nothing was opened."""
    async with running_node(observe={"address": "127.0.0.1:0"}) as node:
        address = node.observe_url.removeprefix("http://")
        with pytest.raises(gapless.ConfigurationError, match=f"cannot listen on {address}"):
            async with running_node(tmp_path / "volume", observe={"address": address}):
                pass

    assert os.listdir(tmp_path) == []  # noqa: PTH208 - asyncio would have it in a thread


async def test_the_command_line_turns_it_on(tmp_path: Path, client: httpx.AsyncClient) -> None:
    """Over what the configuration says."""
    config = tmp_path / "gapless.toml"
    config.write_text('[storage]\nplugin = "memory"\n[[listen]]\naddress = "127.0.0.1:0"\n', "utf-8")
    arguments = ["-m", "gapless.cli", "broker", "--config", str(config), "--json", "--observe", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    told = json.loads(await bounded(process.stdout.readline()))
    assert (await client.get(f"{told['observe']}/readyz")).status_code == 200
    process.terminate()
    log = (await bounded(process.stderr.read())).decode()
    assert await process.wait() == 0
    assert f"tells its figures on {told['observe']}" in log

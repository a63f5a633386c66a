"""The audit of a real broker: every kind of line once, nothing lost when its file is moved away, and full disks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import AuthenticationError, AuthorizationError, Password, PublishRejectedError
from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.node import assembly
from gapless.node.config import make_config
from integration.broker_process import BrokerProcess, bounded, run_broker, until
from integration.networks_in_process import network_of
from integration.nodes_in_process import running_node
from integration.raw_client import RawClient

pytestmark = pytest.mark.timeout(60)

AUTH: list[dict[str, object]] = [{"plugin": "scram", "delays": False}, {"plugin": "anonymous"}]
SELECTOR = "origin = 'JFK' AND " + " AND ".join(f"p{number} > {number}" for number in range(60))


def objects(*files: Path) -> list[dict[str, Any]]:
    """The lines of these files, one after the other."""
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def brief(line: dict[str, Any]) -> tuple[str, ...]:
    return tuple(line[key] for key in ("principal", "kind", "action", "name", "outcome"))


async def test_a_run_with_users_makes_every_kind_of_line_once(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", auth=AUTH, audit={"file": "audit.jsonl"}, node={"name": "desk"})
    async with broker:
        async with gapless.connect(broker.url, client_id="admin") as admin:
            await admin.add_user("ada", "S3CRET", groups=["ops"])
        with pytest.raises(AuthenticationError):
            await gapless.connect(broker.url, client_id="desk-7", credentials=Password("ada", "s3cret"))
        ada = await gapless.connect(broker.url, client_id="desk-7", credentials=Password("ada", "S3CRET"))
        async with ada.session() as session:
            publisher = session.publisher("flights", name="loader")
            await publisher.send_batch([gapless.Message(b"SECRET-BODY")] * 100)
            async with session.subscribe("flights", name="late-jfk", selector=SELECTOR, start="earliest") as late:
                assert late.token is not None
            async with session.subscribe("flights") as volatile:
                await publisher.send(b"one")
                await bounded(anext(volatile))
            await ada.subscriptions()
        await ada.close()
        async with gapless.connect(broker.url, client_id="admin-2") as admin:
            await admin.unsubscribe("late-jfk", client_id="desk-7")
            await admin.remove_user("ada")
            with pytest.raises(gapless.ConfigurationError):
                await admin.retire("shb-of-nowhere")
        async with RawClient(broker.url.removeprefix("gapless://")) as stranger:
            await stranger.send_payloads(b"\0" * 8 + b"nonsense")
            await stranger.hear_all()
        assert await broker.stop() == 0

    file = broker.directory / "audit.jsonl"
    lines = objects(file)
    assert sorted(map(brief, lines)) == sorted(
        [
            ("", "admission", "sign-in", "", "failed"),
            ("", "admission", "sign-in", "", "refused"),
            ("ada", "admission", "sign-in", "", "ok"),
            ("ada", "attachment", "consume", "late-jfk", "ok"),
            ("ada", "attachment", "subscribe", "", "ok"),
            ("ada", "creation", "consume", "late-jfk", "ok"),
            ("ada", "creation", "publish", "loader", "ok"),
            ("ada", "opening", "publish", "loader", "ok"),
            *[("anonymous", "admission", "sign-in", "", "ok")] * 2,
            ("anonymous", "removal", "consume", "late-jfk", "ok"),
            ("anonymous", "request", "manage", "", "failed"),
            *[("anonymous", "request", "manage", "", "ok")] * 2,
            ("anonymous", "request", "manage", "late-jfk", "ok"),
        ]
    )
    assert {line["node"] for line in lines} == {"desk"}
    assert {tuple(line["groups"]) for line in lines if line["principal"] == "ada"} == {("ops",)}
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    addressed = [line for line in lines if (line["kind"], line["action"]) != ("creation", "publish")]
    assert all(line["peer"].startswith("127.0.0.1:") for line in addressed)
    [refused] = [line for line in lines if line["outcome"] == "refused"]
    assert (refused["client_id"], "password is wrong" in refused["reason"]) == ("desk-7", True)
    [attached] = [line for line in lines if line["kind"] == "attachment" and line["action"] == "consume"]
    assert attached["resource"].startswith("flights where origin = 'JFK' AND ")
    assert len(attached["resource"]) < 250 < len(SELECTOR)
    whole = file.read_text("ascii")
    assert not [secret for secret in ("S3CRET", "s3cret", "SECRET-BODY") if secret in whole]
    assert file.stat().st_mode & 0o077 == 0


async def test_nothing_is_lost_when_its_file_is_moved_away_again_and_again(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", audit={"file": "audit.jsonl"})
    file = broker.directory / "audit.jsonl"
    moved: list[Path] = []
    clients: list[str] = []

    async def rotate() -> None:
        while True:
            await asyncio.sleep(0.05)
            moved.append(file.with_suffix(f".{len(moved)}"))
            file.rename(moved[-1])
            os.kill(broker.pid, signal.SIGHUP)
            await until(file.exists, "a new file")

    async with broker:
        rotating = asyncio.create_task(rotate())
        while len(clients) < 120 or len(moved) < 5:
            clients.append(f"client-{len(clients)}")
            async with gapless.connect(broker.url, client_id=clients[-1]) as connection:
                await connection.pubends()
        assert not rotating.done(), "the broker goes on at SIGHUP"
        rotating.cancel()
        with suppress(asyncio.CancelledError):
            await rotating
        await broker.stop()

    lines = objects(*moved, *[file] * file.exists())
    assert [line["client_id"] for line in lines] == clients
    assert not [line for line in lines if "missing" in line]


async def test_a_disk_that_is_full_is_an_alarm_and_the_broker_goes_on() -> None:
    async with (
        running_node(audit={"file": "/dev/full"}) as node,
        gapless.connect(node.url) as connection,
        connection.session() as session,
    ):
        await session.publisher("t").send(b"x")
        await until(lambda: len(node.alarms()) == 2, "two alarms")
        status = await connection.status()

    assert {alarm.code for alarm in status.alarms} == {"audit_unwritable", "audit_incomplete"}
    assert "/dev/full, cannot be written: No space left on device" in " ".join(each.text for each in status.alarms)
    assert status.value("gapless_audit_missing_total") >= 2
    assert status.value("gapless_audit_lines_total") == 0


async def test_where_it_is_required_requests_wait_and_events_and_signs_of_life_go_on(tmp_path: Path) -> None:
    """The file is a pipe that nobody reads for a while."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    settings = {"file": str(pipe), "required": True, "queue": 5}
    async with running_node(audit=settings, limits={"heartbeat": 0.2}) as node:
        connection = await gapless.connect(node.url, client_id="first")
        session = connection.session()
        publisher = session.publisher("t")
        async with session.subscribe("t") as subscription:
            await publisher.send(b"before")
            await bounded(anext(subscription))
            waiting = []
            # The pipe takes 64 KiB before it is full.
            for number in range(1000):
                waiting.append(asyncio.create_task(connect_once(node.url, f"client-{number}-{'x' * 200}")))
                done, _ = await asyncio.wait([waiting[-1]], timeout=1.0)
                if not done:
                    break
            else:
                pytest.fail("nobody has to wait")
            for number in range(20):
                await bounded(publisher.send(b"%d" % number))
                assert (await bounded(anext(subscription))).body == b"%d" % number
                await asyncio.sleep(0.1)  # several heartbeats
            assert connection.connected
            assert not waiting[-1].done()

            read = bytearray()
            while not waiting[-1].done():
                with suppress(BlockingIOError):
                    read += os.read(reading, 65_536)
                await asyncio.sleep(0.01)
        await connection.close()
        await asyncio.gather(*waiting)
        stopping = asyncio.create_task(node.stop())
        while not stopping.done():
            with suppress(BlockingIOError):
                read += os.read(reading, 65_536)
            await asyncio.sleep(0.01)
    with suppress(BlockingIOError):
        read += os.read(reading, 65_536)
    os.close(reading)

    admitted = [line["client_id"] for line in map(json.loads, read.splitlines()) if line["kind"] == "admission"]
    assert len(admitted) == len(waiting) + 1, "no line is missing"
    assert b"missing" not in read


async def connect_once(url: str, client_id: str) -> None:
    async with gapless.connect(url, client_id=client_id):
        pass


class Rules:
    """Nobody may publish `secret`, nor see who subscribes to what."""

    asks = True

    def refusal(self, principal: Principal, action: Action, resource: str) -> str:
        refused = resource in {"secret", "subscriptions"}
        return f"{principal} may not {action.value} {resource}" if refused else ""


async def test_what_rules_refuse_makes_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "AllowAll", Rules)
    file = tmp_path / "audit.jsonl"
    async with (
        running_node(audit={"file": str(file)}) as node,
        gapless.connect(node.url) as connection,
        connection.session() as session,
    ):
        publisher = session.publisher(name="any")
        await publisher.send(b"x", topic="public")
        with pytest.raises(PublishRejectedError, match="may not publish secret"):
            await bounded(publisher.send(b"x", topic="secret"))
        with pytest.raises(PublishRejectedError, match="may not publish secret"):
            await bounded(session.publisher("secret", name="own").send(b"x"))
        with pytest.raises(AuthorizationError):
            await bounded(connection.subscriptions())

    lines = [line for line in objects(file) if line["outcome"] == "refused"]
    assert [(line["kind"], line["action"], line["resource"], line["name"]) for line in lines] == [
        ("request", "publish", "", "any"),
        ("opening", "publish", "secret", "own"),
        ("request", "observe", "subscriptions", ""),
    ]
    assert {"secret" in line["reason"] for line in lines[:2]} == {True}


def test_a_broker_whose_audit_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    ended = run_broker(tmp_path, {"audit": {"file": "nowhere/audit.jsonl"}}, "--create")

    assert ended.status == 2
    assert (
        "gapless.toml: audit.file: nowhere/audit.jsonl: cannot be opened to append to it: No such file or directory"
        in ended.error
    )
    assert [each.name for each in tmp_path.iterdir()] == ["gapless.toml"], "nothing is made by a start that fails"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "audit.file"),
        ({"file": ""}, "audit.file"),
        ({"file": "a", "queue": 0}, "audit.queue"),
        ({"file": "a", "queue": 10_000_000}, "audit.queue"),
        ({"file": "a", "required": "perhaps"}, "audit.required"),
        ({"file": "a", "fil": "b"}, "audit.fil"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(gapless.ConfigurationError, match=said):
        make_config({"audit": settings})


async def test_what_one_node_asks_another_for_a_client_is_a_line_of_both(tmp_path: Path) -> None:
    """A subscription that is consumed away from its home, a publisher elsewhere, and a retirement."""
    files = {name: tmp_path / f"{name}.jsonl" for name in ("phb", "shb", "shb2")}
    async with network_of(tmp_path, *files) as network:
        for name, file in files.items():
            await network.start(name, audit={"file": str(file)})
        await network.until_linked("phb", "shb")
        await network.until_linked("shb", "shb2")
        for name in ("shb", "shb2"):
            await network.until_pubends(name, 1)
            async with gapless.connect(network.nodes[name].url, client_id="desk") as connection:
                session = connection.session()
                await bounded(session.publisher("t", name=f"via-{name}").send(b"x"))
                async with session.subscribe("t", name="late"):
                    pass
                with pytest.raises(gapless.GaplessError):
                    await connection.retire("shb2")  # it runs
        for name in files:
            await network.stop(name)

    lines = {name: objects(file) for name, file in files.items()}
    [home] = [name for name in ("shb", "shb2") for line in lines[name] if line["kind"] == "creation"]
    other = "shb2" if home == "shb" else "shb"
    attached = {
        name: [line["peer"].partition(":")[0] for line in lines[name] if line["kind"] == "attachment"] for name in files
    }
    assert attached[other] == ["127.0.0.1"]
    assert sorted(attached[home]) == ["127.0.0.1", other], "it names the node that has asked for the other"
    made = [line for line in lines["phb"] if line["kind"] == "creation"]
    assert [(line["name"], line["peer"], line["principal"]) for line in made] == [
        ("via-shb", "", "anonymous"),
        ("via-shb2", "", "anonymous"),
    ]

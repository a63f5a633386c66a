"""Rules that change while a broker runs: what one may no longer have one loses on every way, and nobody else does."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import gapless
from gapless import AuthorizationError, GaplessError, Message, Password, jms
from gapless.cli.app import app
from gapless.client.credentials import PASSWORD_FILE
from gapless.core.ports import Roaming
from gapless.core.server.users import UserRow
from gapless.node.config import load_config, make_config
from gapless.node.gauges import RULES
from gapless.node.node import Node
from gapless.security.rule_tables import read_rules
from gapless.security.users import new_verifier, write_users
from gapless_shb.core.state.places import home_of
from integration.broker_process import bounded, to_toml, until
from integration.command_line import Shell, line_of
from integration.networks_in_process import network_of

SECRET = "S3CRET"
USERS = ("ada", "bob", "root")
EVERY_ACTION = ["publish", "subscribe", "consume", "manage", "observe"]
ROOT = {"who": ["root"], "actions": EVERY_ACTION, "topics": ["#"]}
ADA = {"who": ["ada"], "actions": ["publish", "subscribe", "consume"], "topics": ["orders.#"], "client_ids": ["*"]}
BOB = ADA | {"who": ["bob"]}


MAY_NOT_PUBLISH = re.escape("'bob' may not publish to topic 'orders.eu'")


def tables(*rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Tables of rules, in which `manage` stands by itself, as topics do not narrow it."""
    found: list[dict[str, Any]] = []
    for rule in rules:
        actions = [action for action in rule["actions"] if action != "manage"]
        found.append({**rule, "actions": actions})
        if len(actions) < len(rule["actions"]):
            found.append({"who": rule["who"], "actions": ["manage"], "client_ids": ["*"]})
    return found


def write_rules(path: Path, *rules: dict[str, Any]) -> str:
    """Writes a file of rules; returns their name."""
    path.write_text(to_toml({"allow": tables(*rules)}), "utf-8")
    return read_rules(path).name


class Office:
    """A node with users and a file of rules, in this process."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.url = f"gapless://{node.addresses[0]}"
        (folder / "secret").write_text(f"{SECRET}\n", "utf-8")

    @property
    def file(self) -> Path:
        """The rules."""
        return self.folder / "acl.toml"

    def connect(self, user: str, client_id: str) -> Any:
        return gapless.connect(self.url, client_id=client_id, credentials=Password(user, SECRET))

    async def give(self, *rules: dict[str, Any]) -> None:
        """Writes other rules, and waits until they hold."""
        await until_held(self.node, write_rules(self.file, *rules))

    def texts(self, code: str) -> list[str]:
        """What the operator is told, and is not over."""
        return [alarm.text for alarm in self.node.alarms() if alarm.code == code and not alarm.over]


async def until_held(node: Node, name: str) -> None:
    held = RULES.gauge(1, name)
    await until(lambda: held in node.gauges(), f"the rules {name} hold")


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    write_users(tmp_path / "users", {name: UserRow(new_verifier(SECRET), (), 1) for name in USERS})
    write_rules(tmp_path / "acl.toml", ROOT, ADA, BOB)
    settings: dict[str, Any] = {
        "storage": {"plugin": "memory", "path": ""},
        "listen": [{"address": "127.0.0.1:0"}],
        "auth": [{"plugin": "scram", "users": str(tmp_path / "users"), "delays": False}],
        "acl": {"file": str(tmp_path / "acl.toml")},
    }
    node = await Node.start(make_config(settings))
    yield Office(node, tmp_path)
    await node.stop()


async def ends(what: Callable[[], Awaitable[Any]], names: str) -> None:
    """It goes on until it ends, and that because the rules say so."""

    async def go_on() -> None:
        while True:
            await what()

    with pytest.raises(AuthorizationError, match=f"'bob' may not {names}"):
        await bounded(go_on())


# ----------------------------------------------------------------------------------- on every way


async def test_whoever_loses_a_right_loses_what_it_gave_and_nobody_else_does(office: Office) -> None:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        bob, ada = await enter(office.connect("bob", "bob")), await enter(office.connect("ada", "ada"))
        work, hers = await enter(bob.session()), await enter(ada.session())
        durable = await enter(work.subscribe("orders.eu", name="late"))
        passing = await enter(work.subscribe("orders.#"))
        kept = await enter(hers.subscribe("orders.#", name="hers"))
        await bob.attach("job", "orders.eu")
        lease = await enter(bob.lease("job", "bob"))
        publisher, anywhere = work.publisher("orders.eu", name="loader"), work.publisher(None)
        await publisher.send(b"1")
        await anywhere.send(b"2", topic="orders.eu")
        assert (await bounded(anext(durable))).body == b"1"

        await office.give(ROOT, ADA)

        await ends(lambda: anext(durable), "consume the durable subscription 'late'")
        await ends(lambda: anext(passing), "subscribe to 'orders.#'")
        with pytest.raises(AuthorizationError, match="'bob' may not consume"):
            await until_error(lease.check)
        with pytest.raises(GaplessError, match=MAY_NOT_PUBLISH):
            await bounded(publisher.send(b"no"))
        with pytest.raises(GaplessError, match=MAY_NOT_PUBLISH):
            await bounded(anywhere.send(b"no", topic="orders.eu"))
        with pytest.raises(GaplessError, match=MAY_NOT_PUBLISH):
            await bob.publish("p", 1, 1, [Message(b"no")], topic="orders.eu")
        with pytest.raises(AuthorizationError, match="'bob' may not consume"):
            await bounded(work.subscribe("orders.eu", name="late"))
        assert bob.connected, "he is still let in"
        [told] = office.texts("subscription_forbidden")
        assert "'late' of client 'bob'" in told
        assert "'job' of client 'bob'" in told
        await hers.publisher("orders.eu").send(b"3")
        assert [(await bounded(anext(kept))).body for _ in range(3)] == [b"1", b"2", b"3"]

        await office.give(ROOT, ADA, BOB)

        again = await enter(work.subscribe("orders.eu", name="late"))
        assert [(await bounded(anext(again))).body for _ in range(3)] == [b"1", b"2", b"3"], "nothing was acknowledged"
        await work.publisher("orders.eu", name="loader").send(b"4")
        assert (await bounded(anext(again))).body == b"4"


async def until_error(check: Callable[[], Any]) -> None:
    for _ in range(600):
        check()
        await asyncio.sleep(0.01)


async def test_a_read_that_is_under_way_ends(office: Office) -> None:
    """It has credit for some of the events; the rest is not sent, whenever it is asked for."""
    async with office.connect("bob", "bob") as bob, bob.session() as session:
        await bob.attach("job", "orders.eu")
        publisher = session.publisher("orders.eu")
        receipts = [await publisher.send(b"x" * 900_000) for _ in range(40)]
        async with bob.read_range("job", receipts[0].pubend, receipts[0].tick - 1, receipts[-1].tick) as reader:
            await bounded(anext(reader))

            await office.give(ROOT)

            await ends(lambda: anext(reader), "consume the durable subscription 'job'")


async def test_blocking_programs_and_jms_are_told_as_well(office: Office) -> None:
    ready = [threading.Event() for _ in range(3)]
    told: dict[str, BaseException] = {}

    def blocking() -> None:
        with gapless.sync.connect(office.url, client_id="bob", credentials=Password("bob", SECRET)) as connection:
            with connection.session() as session, session.subscribe("orders.eu", name="late") as subscription:
                publisher = session.publisher("orders.eu")
                publisher.send(b"x", timeout=30)
                ready[0].set()
                try:
                    while True:
                        subscription.receive(timeout=30)
                except GaplessError as error:
                    told["blocking"] = error
                try:
                    publisher.send(b"x", timeout=30)
                except GaplessError as error:
                    told["sending"] = error

    def in_jms() -> None:
        factory = jms.ConnectionFactory(office.url, user="bob", password=SECRET)
        with factory.create_context() as context:
            context.set_client_id("bob-jms")
            consumer = context.create_durable_consumer(context.create_topic("orders.eu"), "late")
            ready[1].set()
            try:
                while consumer.receive(timeout=30):
                    pass
            except jms.JMSError as error:
                told["jms"] = error

    def on_the_command_line() -> None:
        shell = Shell(office.folder)
        shell.environment["GAPLESS_PASSWORD_FILE"] = str(office.folder / "secret")
        options = ["--url", office.url, "--user", "bob", "--client-id", "bob-cli", "--topic", "orders.eu"]
        process = shell.start("subscribe", "late", *options, "--start", "earliest", "--json")
        assert json.loads(line_of(process))["body"] == "x"
        ready[2].set()
        _, errors = process.communicate(timeout=60)
        told["command"] = AssertionError(f"{process.returncode} {errors}")

    running = [asyncio.to_thread(each) for each in (blocking, in_jms, on_the_command_line)]
    all_of_them = asyncio.gather(*running)
    for each in ready:
        assert await asyncio.to_thread(each.wait, 60)

    await office.give(ROOT)
    await bounded(all_of_them)

    assert isinstance(told["blocking"], AuthorizationError)
    for way, said in told.items():
        assert "'bob" in str(said), way
        assert "may not" in str(said), way
    assert str(told["command"]).startswith("1 ")
    assert "Traceback" not in str(told["command"])


# ------------------------------------------------------------------------------- rules that are wrong


async def test_rules_that_cannot_be_used_change_nothing_and_the_operator_is_told(office: Office) -> None:
    async with office.connect("bob", "bob") as bob, bob.session() as session:
        async with session.subscribe("orders.eu", name="late") as late:
            good = office.file.read_text("utf-8")
            office.file.write_text(f'{good}\n[[allow]]\nwho = "eve"\nactions = ["pay"]\n', "utf-8")
            await until(lambda: bool(office.texts("rules_unusable")), "the alarm")
            [told] = office.texts("rules_unusable")
            assert "acl.toml: [[allow]] 5 (line " in told
            assert "there is no action 'pay'" in told
            assert "the rules that there were before count" in told

            office.file.unlink()
            await until(lambda: "No such file" in "".join(office.texts("rules_unusable")), "the other alarm")
            await session.publisher("orders.eu").send(b"x")
            assert (await bounded(anext(late))).body == b"x"

            await office.give(ROOT)
            assert office.texts("rules_unusable") == []
            await ends(lambda: anext(late), "consume the durable subscription 'late'")


async def test_the_rules_of_a_configuration_are_watched_too(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {name: UserRow(new_verifier(SECRET), (), 1) for name in USERS})
    sections: dict[str, Any] = {
        "storage": {"plugin": "memory", "path": ""},
        "listen": [{"address": "127.0.0.1:0"}],
        "auth": [{"plugin": "scram", "users": str(tmp_path / "users"), "delays": False}],
    }
    file = tmp_path / "gapless.toml"
    file.write_text(to_toml({**sections, "allow": tables(ROOT, BOB)}), "utf-8")
    node = await Node.start(load_config(file))
    try:
        office = Office(node, tmp_path)
        async with office.connect("bob", "bob") as bob, bob.session() as session:
            async with session.subscribe("orders.eu", name="late") as late:
                file.write_text(to_toml({**sections, "allow": tables(ROOT)}), "utf-8")

                await ends(lambda: anext(late), "consume the durable subscription 'late'")
    finally:
        await node.stop()


# ------------------------------------------------------------------------------------- in a network


@pytest.mark.parametrize("strict", ["home", "other"])
async def test_a_guest_is_judged_by_either_of_its_nodes(tmp_path: Path, strict: str) -> None:
    """The rules change at one node alone: at the home of the subscription, or where its consumer is connected."""
    write_users(tmp_path / "users", {name: UserRow(new_verifier(SECRET), (), 1) for name in USERS})
    auth = [{"plugin": "scram", "users": str(tmp_path / "users"), "delays": False}]
    async with network_of(tmp_path, "phb", "shb", "shb2") as network:
        home = home_of("bob", Roaming(("shb", "shb2"), network.network["secret"].encode()))
        other = "shb" if home == "shb2" else "shb2"
        for name in ("phb", home, other):
            write_rules(tmp_path / f"{name}.toml", ROOT, BOB)
            await network.start(name, auth=auth, acl={"file": str(tmp_path / f"{name}.toml")})
        await network.until_linked("phb", "shb")
        await network.until_linked("shb", "shb2")
        url = network.nodes[other].url
        async with gapless.connect(url, client_id="bob", credentials=Password("bob", SECRET)) as bob:
            async with bob.session() as session:
                late = await session.subscribe("orders.eu", name="late")
                publisher = session.publisher("orders.eu")
                await bounded(publisher.send(b"1"))
                assert (await bounded(anext(late))).body == b"1"
                await late.acknowledge()

                judge = home if strict == "home" else other
                await until_held(network.nodes[judge], write_rules(tmp_path / f"{judge}.toml", ROOT))

                await ends(lambda: anext(late), "consume the durable subscription 'late'")
                await until_held(network.nodes[judge], write_rules(tmp_path / f"{judge}.toml", ROOT, BOB))
                await bounded(session.publisher("orders.eu").send(b"2"))
                async with session.subscribe("orders.eu", name="late") as again:
                    assert (await bounded(anext(again))).body == b"2"


async def test_a_command_says_which_rules_hold_where(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {name: UserRow(new_verifier(SECRET), (), 1) for name in USERS})
    auth = [{"plugin": "scram", "users": str(tmp_path / "users"), "delays": False}]
    file, secret = tmp_path / "acl.toml", tmp_path / "secret"
    first = write_rules(file, ROOT, BOB)
    secret.write_text(f"{SECRET}\n", "utf-8")
    async with network_of(tmp_path, "phb", "shb") as network:
        for name in ("phb", "shb"):
            await network.start(name, auth=auth, acl={"file": str(file)})
        await network.until_linked("phb", "shb")

        def run(*arguments: str | Path) -> Result:
            return CliRunner().invoke(app, [*map(str, arguments)], env={PASSWORD_FILE: str(secret)})

        async def nodes(*more: str | Path, status: int, user: str = "root") -> str:
            asked = ("acl", "nodes", "--url", network.nodes["shb"].url, "--user", user)
            of_all = ("--network", tmp_path / "network.toml")
            done = await asyncio.to_thread(run, *asked, *of_all, *more)
            assert done.exit_code == status, done.output
            return done.output

        rows = json.loads(await nodes("--file", file, "--json", status=0))
        assert [(row["node"], row["rules"], row["state"]) for row in rows] == [
            ("phb", first, "hold"),
            ("shb", first, "hold"),
        ]
        other = write_rules(tmp_path / "other.toml", ROOT)
        assert f"others than the rules {other} that are wanted" in await nodes(
            "--file", tmp_path / "other.toml", status=1
        )
        write_rules(file, ROOT)
        for name in ("phb", "shb"):
            await until_held(network.nodes[name], other)
        assert other in await nodes(status=0)
        assert "may not observe 'status'" in await nodes(status=1, user="bob")
        assert f"these are the rules {other}" in run("acl", "show", "--file", file).output

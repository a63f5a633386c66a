"""Rules hold on every way into a broker: what one may not do is refused with a reason, and what one may is done."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gapless
from certificates import Directory
from documents import ROOT, code_blocks
from gapless import AuthorizationError, GaplessError, Message, Password, jms
from gapless.cli.app import app
from gapless.client import embedded
from gapless.client.connection import Connecting
from gapless.client.credentials import PASSWORD_FILE
from gapless.core.ports import Roaming
from gapless.core.server.users import UserRow
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless.security.users import new_verifier, write_users
from gapless_shb.core.state.places import home_of
from integration.broker_process import BrokerProcess, bounded
from integration.command_line import Shell
from integration.networks_in_process import network_of

RULES: dict[str, list[dict[str, Any]]] = {
    "allow": [
        {"who": "admin", "actions": ["publish", "subscribe"], "topics": "#"},
        {"who": "admin", "actions": ["consume", "manage", "observe"], "client_ids": "*"},
        {"who": "group:desk", "actions": ["publish", "subscribe", "consume"], "topics": ["orders.eu.#"]},
        {"who": "group:desk", "actions": "observe", "names": ["eu.*"]},
        {"who": "group:audit", "actions": ["subscribe"], "topics": "orders.#"},
        {"who": "till", "actions": "publish", "topics": ["orders.eu.#"], "publishers": ["till-*"]},
        {"who": "till", "actions": ["subscribe", "consume"], "topics": ["orders.eu.#"]},
    ],
    "deny": [{"who": ["group:audit", "group:desk"], "actions": "subscribe", "topics": "orders.eu.secret.#"}],
}
USERS = {"admin": (), "bob": ("desk",), "eve": (), "aud": ("audit",), "till": ()}
SECRET = "S3CRET"


def rows() -> dict[str, UserRow]:
    return {name: UserRow(new_verifier(SECRET), groups, 1) for name, groups in USERS.items()}


class Office:
    """A node with users and rules, in this process."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.url = f"gapless://{node.addresses[0]}"
        (folder / "secret").write_text(f"{SECRET}\n", "utf-8")

    def connect(self, user: str, client_id: str | None = None) -> Connecting:
        return gapless.connect(self.url, client_id=client_id or user, credentials=Password(user, SECRET))

    async def command(self, user: str, *arguments: str | Path, status: int = 0) -> str:
        """Runs a command as a user; returns what it printed."""
        return await asyncio.to_thread(self._command, user, *arguments, status=status)

    def _command(self, user: str, *arguments: str | Path, status: int) -> str:
        options = ["--url", self.url, "--user", user]
        environment = {PASSWORD_FILE: str(self.folder / "secret")}
        result = CliRunner().invoke(app, [*map(str, arguments), *options], env=environment)
        assert result.exit_code == status, result.output
        return result.output


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    write_users(tmp_path / "users", rows())
    settings: dict[str, Any] = {
        "storage": {"plugin": "memory", "path": ""},
        "listen": [{"address": "127.0.0.1:0"}],
        "auth": [{"plugin": "scram", "users": str(tmp_path / "users"), "delays": False}],
        **RULES,
    }
    node = await Node.start(make_config(settings))
    yield Office(node, tmp_path)
    await node.stop()


def refused(what: str) -> Any:
    """It is refused, with who, what, and what about."""
    return pytest.raises(GaplessError, match=re.escape(what))


# ----------------------------------------------------------------------------------- publishing


async def test_publishing_needs_the_topic_on_every_way(office: Office) -> None:
    async with office.connect("bob") as connection, connection.session() as session:
        await session.publisher("orders.eu.new").send(b"x")
        anywhere = session.publisher(None)
        await anywhere.send(b"x", topic="orders.eu.old")
        with refused("principal 'bob' may not publish to topic 'orders.us': no [[allow]]"):
            await bounded(session.publisher("orders.us").send(b"x"))
        with refused("principal 'bob' may not publish to topic 'orders.us'"):
            await bounded(anywhere.send(b"x", topic="orders.us"))
        with refused("principal 'bob' may not publish to topic 'orders.us'"):
            await connection.publish("p", 1, 1, [Message(b"x")], topic="orders.us")
        await connection.publish("p", 1, 1, [Message(b"x")], topic="orders.eu.keyed")


async def test_the_name_of_a_publisher_is_a_right_on_every_way(office: Office) -> None:
    no = "principal 'till' may not publish as publisher 'ledger': no [[allow]] with the action 'publish' is for it"
    topic = "orders.eu.new"
    async with office.connect("admin") as admin, admin.session() as of_admin:
        ledger = of_admin.publisher(topic, name="ledger")
        await ledger.send(b"one")
        async with office.connect("till") as connection, connection.session() as session:
            for name in ("till-1", None):
                await session.publisher(topic, name=name).send(b"x")
                await session.publisher(name=name and f"{name}0").send(b"x", topic=topic)
            for named in (session.publisher(topic, name="ledger"), session.publisher(name="ledger")):
                with refused(no):
                    await bounded(named.send(b"x", topic=topic))
                with refused(no):
                    await bounded(named.send_batch([Message(b"x", topic=topic)]))
                with refused(no):
                    await bounded(named.recover())
            with refused(no):
                await connection.publish("ledger", 1, 1, [Message(b"x")], topic=topic)
            await connection.publish("till-keyed", 1, 1, [Message(b"x")], topic=topic)
            with refused(no):
                await bounded(session.transform(topic, to="orders.eu.out", name="ledger"))

        def blocking() -> None:
            with gapless.sync.connect(office.url, client_id="till", credentials=Password("till", SECRET)) as connection:
                with connection.session() as session, refused(no):
                    session.publisher(topic, name="ledger").send(b"x", timeout=10)
                with refused(no):
                    connection.publish("ledger", 1, 1, [Message(b"x")], topic=topic, timeout=10)

        await asyncio.to_thread(blocking)
        await ledger.send(b"two")
        assert (await ledger.recover()).sequence == 2


async def test_who_may_publish_nothing_takes_no_name_from_anybody(office: Office) -> None:
    """Also not by opening it without a topic, which is asked about with each event alone."""
    async with office.connect("eve") as connection, connection.session() as session:
        with refused("principal 'eve' may not publish as publisher 'ledger'"):
            await bounded(session.publisher(name="ledger").recover())


async def test_a_batch_with_a_topic_that_is_not_allowed_is_refused_whole(office: Office) -> None:
    async with office.connect("admin") as admin, admin.session() as all_of_it:
        async with all_of_it.subscribe("#") as seen:
            async with office.connect("bob") as connection, connection.session() as session:
                publisher = session.publisher(None)
                batch = [Message(b"a", topic="orders.eu.a"), Message(b"b", topic="orders.us")]
                with refused("may not publish to topic 'orders.us'"):
                    await bounded(publisher.send_batch(batch))
                with refused("may not publish to topic 'orders.us'"):
                    await connection.publish("p", 1, 1, batch)
                await session.publisher("orders.eu.a").send(b"after")
            first = await bounded(anext(seen))
    assert (first.topic, first.body) == ("orders.eu.a", b"after")


async def test_blocking_jms_and_commands_are_judged_as_well(office: Office) -> None:
    def blocking() -> None:
        with gapless.sync.connect(office.url, client_id="bob", credentials=Password("bob", SECRET)) as connection:
            with connection.session() as session:
                with refused("may not publish to topic 'orders.us'"):
                    session.publisher("orders.us").send(b"x", timeout=10)
                with refused("may not subscribe to 'orders.#'"):
                    session.subscribe("orders.#", timeout=10)

    def in_jms() -> None:
        factory = jms.ConnectionFactory(office.url, user="bob", password=SECRET)
        with factory.create_context() as context:
            context.set_client_id("bob")
            with pytest.raises(jms.JMSError, match=r"may not publish to topic 'orders\.us'"):
                context.create_producer().send(context.create_topic("orders.us"), "x")
            with pytest.raises(jms.JMSError, match=r"may not subscribe to 'orders\.us'"):
                context.create_durable_consumer(context.create_topic("orders.us"), "late")
            context.create_producer().send(context.create_topic("orders.eu"), "x")

    await asyncio.to_thread(blocking)
    await asyncio.to_thread(in_jms)
    assert "may not publish to topic 'orders.us'" in await office.command(
        "bob", "publish", "orders.us", "-m", "x", status=1
    )
    assert "may not subscribe to 'orders.#'" in await office.command(
        *("bob", "subscribe", "s", "--client-id", "bob", "--topic", "orders.#", "--count", "1"), status=1
    )
    await office.command("bob", "publish", "orders.eu", "-m", "x")


# ----------------------------------------------------------------------------------- consuming


async def test_a_wildcard_needs_a_rule_that_covers_all_of_it(office: Office) -> None:
    async with office.connect("aud") as connection, connection.session() as session:
        with refused("principal 'aud' may not subscribe to '#': no [[allow]]"):
            await bounded(session.subscribe("#"))
        with refused("configuration: [[deny]] 1 denies a part of that; a narrower subscription is possible"):
            await bounded(session.subscribe("orders.#"))
        with refused("[[deny]] 1 denies it"):
            await bounded(session.subscribe("orders.eu.secret"))
        async with session.subscribe("orders.us.#"):
            pass


async def test_nobody_takes_the_subscription_of_another_by_calling_himself_so(office: Office) -> None:
    """A client id is whatever a client says."""
    async with office.connect("bob") as connection, connection.session() as session:
        async with session.subscribe("orders.eu.new", name="late", start="earliest") as subscription:
            token = subscription.token
        await session.publisher("orders.eu.new").send(b"for bob")
    said = "may not consume the durable subscription 'late' of client 'bob'"
    async with office.connect("eve", "bob") as eve, eve.session() as session:
        with refused(said):
            await bounded(session.subscribe("orders.eu.new", name="late"))
        with refused(said):
            await eve.attach("late", "orders.eu.new")
        with refused(said):
            await eve.unsubscribe("late")
        for target in ("late", token):
            with refused("principal 'eve' may not consume the"):
                await eve.heads(target)
            with refused("principal 'eve' may not consume the"):
                await eve.earliest(target)
            with refused("principal 'eve' may not consume the"):
                await eve.ack(target, token)
            with refused("principal 'eve' may not consume the"):
                await bounded(eve.lease(target, "eve"))
            [(pubend, tick)] = token.ticks.items()
            with refused("principal 'eve' may not consume the"):
                await eve.bound(target, token, max_events=1)
            with refused("principal 'eve' may not consume the"):
                await bounded(anext(eve.read_range(target, pubend, tick, tick + 1)))
    async with office.connect("bob") as bob:
        for asked in (bob.heads, bob.earliest):
            assert list((await asked()).ticks) == [pubend]
    async with office.connect("eve") as eve:
        for asked in (eve.heads, eve.earliest):
            assert list((await asked()).ticks) == [], "nor is it told which pubends there are"
        with refused("principal 'eve' may not manage the durable subscription 'late' of client 'bob'"):
            await eve.unsubscribe("late", client_id="bob")
    async with office.connect("bob") as connection, connection.session() as session:
        async with session.subscribe("orders.eu.new", name="late") as subscription:
            assert (await bounded(anext(subscription))).body == b"for bob"
        await connection.unsubscribe("late")


# ------------------------------------------------------------------------------- looking and managing


async def test_lists_show_what_one_may_know_of_and_say_how_much_more_there_is(office: Office) -> None:
    async with office.connect("bob") as connection, connection.session() as session:
        for name in ("eu.late", "us.late", "own"):
            async with session.subscribe("orders.eu.x", name=name):
                pass
        found = await connection.subscriptions()
        assert ([info.name for info in found], found.hidden) == (["eu.late"], 2)
        with refused("principal 'bob' may not observe 'status'"):
            await connection.status()
        with refused("principal 'bob' may not manage 'shb nowhere'"):
            await connection.retire("nowhere")
    async with office.connect("admin") as connection:
        found = await connection.subscriptions()
        assert (len(found), found.hidden) == (3, 0)
        assert len(await connection.pubends()) == 1
        await connection.status()
        await connection.unsubscribe("own", client_id="bob")
    async with office.connect("eve") as connection:
        with refused("principal 'eve' may not observe 'subscriptions'"):
            await connection.subscriptions()
        with refused("principal 'eve' may not observe 'pubends'"):
            await connection.pubends()

    listed = await office.command("bob", "subscriptions")
    assert "eu.late" in listed
    assert "us.late" not in listed
    assert "1 more are not shown: the rules of the broker do not let you know of them" in listed
    rows_and_hidden = json.loads(await office.command("bob", "subscriptions", "--json"))
    assert rows_and_hidden[-1] == {"hidden": 1}
    assert "may not observe 'pubends'" in await office.command("eve", "pubends", status=1)


async def test_a_client_that_may_see_no_status_lives_on(office: Office) -> None:
    """Clients ask for it as a sign of life; the refusal is one as well."""
    async with office.connect("bob") as connection, connection.session() as session:
        connection._driver.core.ask_for_life(connection._driver.now())
        await asyncio.sleep(0.2)
        await session.publisher("orders.eu.x").send(b"x")
        assert connection.connected


async def test_what_runs_within_the_process_needs_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"storage": {"plugin": "memory", "path": ""}, "listen": [], **RULES}
    monkeypatch.setattr(embedded, "_start_node", lambda _: Node.start(make_config(settings)))

    async with gapless.connect("embedded:") as connection, connection.session() as session:
        async with session.subscribe("#", name="late") as subscription:
            await session.publisher("us.anything").send(b"x")
            assert (await bounded(anext(subscription))).body == b"x"
        assert len(await connection.pubends()) == 1
        await connection.status()


# ------------------------------------------------------------------------------------- in a network


async def test_in_a_network_every_node_judges_by_its_own_rules(tmp_path: Path) -> None:
    """One that lets all pass gets nobody past the others: the node of the log, and the home of a subscription."""
    write_users(tmp_path / "users", rows())
    auth = [{"plugin": "scram", "users": str(tmp_path / "users"), "delays": False}]
    everything = {"who": "*", "actions": ["publish", "subscribe"], "topics": "#"}
    all_of_them = {"who": "*", "actions": ["consume", "manage", "observe"], "client_ids": "*"}
    lenient: dict[str, Any] = {"allow": [everything, all_of_them]}
    strict: dict[str, Any] = RULES
    async with network_of(tmp_path, "phb", "shb", "shb2") as network:
        home = home_of("desk", Roaming(("shb", "shb2"), network.network["secret"].encode()))
        other = "shb" if home == "shb2" else "shb2"
        for name in ("phb", home):
            await network.start(name, auth=auth, **strict)
        await network.start(other, auth=auth, **lenient)
        await network.until_linked("phb", "shb")
        await network.until_linked("shb", "shb2")
        url = network.nodes[other].url
        async with gapless.connect(url, client_id="desk", credentials=Password("eve", SECRET)) as eve:
            async with eve.session() as session:
                with refused("principal 'eve' may not publish to topic 'orders.eu.x'"):
                    await bounded(session.publisher("orders.eu.x").send(b"x"))
                with refused("principal 'eve' may not consume the durable subscription 'late' of client 'desk'"):
                    await bounded(session.subscribe("orders.eu.x", name="late"))
            with refused("principal 'eve' may not observe 'pubends'"):
                await eve.pubends()
            listed = await eve.subscriptions()
            assert [each.node for each in listed.missing] == [home]
        async with gapless.connect(url, client_id="desk", credentials=Password("admin", SECRET)) as admin:
            async with admin.session() as session, session.subscribe("orders.eu.x", name="late") as late:
                await bounded(session.publisher("orders.eu.x").send(b"for the guest"))
                assert (await bounded(anext(late))).body == b"for the guest"
            assert [info.name for info in await admin.subscriptions()] == ["late"]


# --------------------------------------------------------------------------- through the front door


async def test_a_broker_with_tls_users_and_a_file_of_rules(tmp_path: Path) -> None:
    certified = Directory(tmp_path)
    write_users(tmp_path / "users", rows())
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n", "utf-8")
    folder = tmp_path / "broker"
    folder.mkdir()
    tables = "\n".join(
        f"[[{kind}]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
        for kind, of_kind in RULES.items()
        for table in of_kind
    )
    (folder / "acl.toml").write_text(f'{tables}\n[[allow]]\nwho = "desk-*"\nactions = "observe"\n', "utf-8")
    broker = BrokerProcess(
        folder,
        listen=[{"address": "127.0.0.1:0", "certificate": str(certified.certificate), "key": str(certified.key)}],
        auth=[{"plugin": "scram", "users": str(tmp_path / "users"), "delays": False}],
        acl={"file": "acl.toml"},
    )
    shell = Shell(tmp_path)
    async with broker:
        url = f"{broker.url}?ca={certified.ca}"
        bob = url.replace("://", "://bob@", 1) + f"&password_file={secret}"
        async with gapless.connect(bob, client_id="bob") as connection, connection.session() as session:
            async with session.subscribe("orders.eu.new", name="late") as late:
                await session.publisher("orders.eu.new").send(b"over TLS")
                assert (await bounded(anext(late))).body == b"over TLS"
            with pytest.raises(AuthorizationError, match=r"acl.toml: \[\[deny\]\] 1 \(line \d+\) denies a part"):
                await bounded(session.subscribe("orders.eu.#"))
        denied = await asyncio.to_thread(shell.run, "publish", "orders.us", "-m", "x", "--url", bob, status=1)
        assert "principal 'bob' may not publish to topic 'orders.us'" in denied.stderr
        config = folder / "gapless.toml"
        asked = await asyncio.to_thread(
            shell.run, "acl", "check", "bob,group:desk", "publish", "orders.us", "--config", config, status=1
        )
        assert asked.stdout.partition(": ")[2].strip() in denied.stderr, "the command says what the broker says"
        admin = bob.replace("bob@", "admin@", 1)
        doctor = await asyncio.to_thread(shell.run, "doctor", "--url", admin, status=1)
        assert "rules_doubtful" in doctor.stdout
        assert "'desk-*' is for nobody" in doctor.stdout
    assert "[[allow]] 8 (line" in broker.log
    assert SECRET not in broker.log


async def test_rules_that_are_wrong_keep_a_broker_from_starting(tmp_path: Path) -> None:
    config = tmp_path / "gapless.toml"
    config.write_text('[[allow]]\nwho = "bob"\nactions = ["pay"]\n', "utf-8")
    shell = Shell(tmp_path)

    done = await asyncio.to_thread(shell.run, "broker", "--config", config, "--create", status=2)

    assert f"{config}: [[allow]] 1 (line 1): actions: there is no action 'pay'" in done.stderr
    assert not (tmp_path / "gapless-data").exists()


@pytest.mark.skipif(os.name == "nt", reason="the page is written for a shell")
def test_the_page_on_rights_says_what_is_so(tmp_path: Path) -> None:
    """docs/howto/give-rights.md, as its reader does it."""
    page = ROOT / "docs" / "howto" / "give-rights.md"
    for block in code_blocks(page, "toml"):
        name = block.code.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block.code, "utf-8")
    shell = Shell(tmp_path)
    commands = "\n".join(block.code for block in code_blocks(page, "sh")).splitlines()

    said = [
        shell.run(*shlex.split(line, comments=False)[1:], status=1 if "orders.#" in line else 0).stdout
        for line in filter(str.strip, commands)
    ]

    assert [text.partition(":")[0] for text in said[:3]] == ["yes", "yes", "no"]
    assert "[[deny]] 1 (line 18) denies a part of that" in said[2]
    assert said[-1] == "2 of 2 expectations hold\n"
    shell.run("acl", "show", "--config", "gapless.toml")

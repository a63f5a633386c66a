"""Users of a real broker: made while it is stopped, and over loopback while it serves; and what becomes of theirs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from typer.testing import CliRunner

import gapless
from gapless import AuthenticationError, Password
from gapless.cli.app import app
from gapless.core.server.users import UserRow
from gapless.security.users import new_verifier, write_users
from gapless_testing.ports import free_ports
from integration.broker_process import BrokerProcess, bounded, until
from integration.nodes_in_process import running_node

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUTH: list[dict[str, object]] = [{"plugin": "scram", "delays": False}, {"plugin": "anonymous"}]


EVERYWHERE, HERE = (f"{host}:{port}" for host, port in zip(("0.0.0.0", "127.0.0.1"), free_ports(2), strict=True))
"""One listener for every interface, which others can reach, and one for the own machine."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrokerProcess]:
    """A broker that knows users, and takes others, too."""
    folder = tmp_path_factory.mktemp("broker")
    listen = [{"address": HERE}, {"address": EVERYWHERE}]
    async with BrokerProcess(folder, auth=AUTH, node={"insecure": True}, listen=listen) as broker:
        yield broker


async def user(*arguments: str | Path, secret: str = "", status: int = 0) -> str:
    """Runs `gapless user ARGUMENTS…`; what it printed on both outputs."""
    given = ["--password-stdin"] if secret else []
    words = ["user", *map(str, arguments), *given]
    done = await asyncio.to_thread(CliRunner().invoke, app, words, input=secret or None, env={"COLUMNS": "200"})
    assert done.exit_code == status, done.output
    return done.output


async def welcomes(broker: BrokerProcess, name: str, secret: str) -> bool:
    """Whether the broker lets somebody in with this password."""
    try:
        async with gapless.connect(broker.url, credentials=Password(name, secret)) as connection:
            await connection.pubends()
    except AuthenticationError as error:
        assert "the credentials are not valid here" in str(error)
        return False
    return True


async def until_it_fails(connection: gapless.Connection) -> None:
    """Works until the connection is over."""
    for _ in range(1000):
        await connection.pubends()
        await asyncio.sleep(0.01)


async def test_the_first_user_is_made_while_the_broker_is_stopped_and_survives_its_end(
    broker: BrokerProcess,
) -> None:
    config = broker.directory / "gapless.toml"
    assert "in use" in await user("add", "first", "--config", config, secret="S3CRET", status=1)
    await broker.stop()
    await user("add", "first", "--config", config, secret="S3CRET")
    await broker.start()
    assert await welcomes(broker, "first", "S3CRET")
    assert not await welcomes(broker, "first", "s3cret")
    assert not await welcomes(broker, "nobody", "S3CRET")
    assert "the password is wrong" in broker.log
    assert "there is no such user" in broker.log
    assert "S3CRET" not in broker.log

    await user("add", "second", "--url", broker.url, "--group", "ops", secret="one")
    assert await welcomes(broker, "second", "one")
    await broker.restart()
    assert await welcomes(broker, "second", "one")
    assert await welcomes(broker, "first", "S3CRET")
    assert '"groups": ["ops"]' in await user("list", "--url", broker.url, "--json")


async def test_who_is_removed_or_has_another_password_has_to_go(broker: BrokerProcess) -> None:
    nobody = await gapless.connect(broker.url)
    for name in ("ada", "bob"):
        await nobody.add_user(name, "one")
    ada = await gapless.connect(broker.url, credentials=Password("ada", "one"))
    bob = await gapless.connect(broker.url, credentials=Password("bob", "one"))
    publisher = nobody.session().publisher("flights")
    await publisher.send(b"before")

    await user("password", "ada", "--url", broker.url, secret="two")
    with pytest.raises(AuthenticationError, match="the password of user 'ada' was changed: connect with the new one"):
        await bounded(until_it_fails(ada))
    assert await welcomes(broker, "ada", "two")
    assert not await welcomes(broker, "ada", "one")
    await bob.pubends()

    await user("remove", "bob", "--url", broker.url)
    with pytest.raises(AuthenticationError, match="user 'bob' was removed"):
        await bounded(until_it_fails(bob))
    assert not await welcomes(broker, "bob", "one")
    await publisher.send(b"the others notice nothing")
    for connection in (ada, bob, nobody):
        await connection.close()
    await until(lambda: "user 'bob' was removed" in broker.log, "a line of the removal in the log")


async def test_whoever_changes_the_own_password_goes_on(broker: BrokerProcess) -> None:
    """Every other session of the same user ends."""
    async with gapless.connect(broker.url) as nobody:
        await nobody.add_user("eve", "one")
    here = await gapless.connect(broker.url, credentials=Password("eve", "one"))
    elsewhere = await gapless.connect(broker.url, credentials=Password("eve", "one"))

    await here.change_password("eve", "two")
    await here.pubends()
    with pytest.raises(AuthenticationError):
        await bounded(until_it_fails(elsewhere))

    assert here.connected
    for connection in (here, elsewhere):
        await connection.close()


async def test_from_another_machine_only_the_own_password_is_changed(broker: BrokerProcess) -> None:
    """A listener for every interface can be reached by others, whoever comes through it."""
    async with gapless.connect(broker.url) as nobody:
        await nobody.add_user("dan", "one")
    url = f"gapless://{EVERYWHERE.replace('0.0.0.0', '127.0.0.1')}"
    async with gapless.connect(url, credentials=Password("dan", "one")) as connection:
        for asking in (
            connection.users(),
            connection.add_user("bob", "x"),
            connection.change_password("bob", "x"),
            connection.change_groups("dan", ["admin"]),
            connection.remove_user("dan"),
        ):
            with pytest.raises(gapless.AuthorizationError, match="own password"):
                await asking
        await connection.change_password("dan", "two")
    assert await welcomes(broker, "dan", "two")


async def test_a_file_of_users_is_read_by_a_broker_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is removed there, or has another password, has to go; a file that cannot be used disturbs nobody."""
    monkeypatch.setattr("gapless.security.users.LOOK", 20_000_000)
    monkeypatch.setattr("gapless.node.upkeep.INTERVAL", 0.02)
    caplog.set_level(logging.INFO)
    file = tmp_path / "users"
    ada, bob, zoe, other = (UserRow(new_verifier(secret), (), 1) for secret in ("one", "two", "three", "four"))
    write_users(file, {"ada": ada, "zoe": zoe})
    async with running_node(auth={"plugin": "scram", "users": str(file), "delays": False}) as node:
        first = await gapless.connect(node.url, credentials=Password("ada", "one"))
        third = await gapless.connect(node.url, credentials=Password("zoe", "three"))
        file.write_text('{"name": "ada"', "utf-8")
        await until(lambda: [alarm.over for alarm in node.alarms()] == [False], "an alarm")
        (alarm,) = node.alarms()
        assert (alarm.code, alarm.about) == ("credentials_unusable", str(file))
        assert "line 1 is no user" in alarm.text
        await first.pubends()

        write_users(file, {"bob": bob, "zoe": other})
        await until(lambda: [alarm.over for alarm in node.alarms()] == [True], "the end of the alarm")
        for gone, why in ((first, "user 'ada' was removed"), (third, "the password of user 'zoe' was changed")):
            with pytest.raises(AuthenticationError, match=why):
                await bounded(until_it_fails(gone))
            await gone.close()
        for name, secret in (("bob", "two"), ("zoe", "four")):
            async with gapless.connect(node.url, credentials=Password(name, secret)) as connection:
                with pytest.raises(gapless.ConfigurationError, match="gapless user --file"):
                    await connection.add_user("eve", "x")
    assert caplog.text.count("line 1 is no user") == 2, "it is told when it begins, and when it is over"

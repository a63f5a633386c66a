"""Users of a real broker: made while it is stopped, and over loopback while it serves; and what becomes of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gapless
from gapless import AuthenticationError, Password
from gapless.core.server.users import UserRow
from gapless.security.users import new_verifier, write_users
from gapless_testing.ports import free_ports
from integration.broker_process import BrokerProcess, bounded, until
from integration.command_line import Shell

AUTH: list[dict[str, object]] = [{"plugin": "scram", "delays": False}, {"plugin": "anonymous"}]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker that knows users, and takes others, too; it was never started."""
    broker = BrokerProcess(tmp_path / "broker", auth=AUTH)
    yield broker
    await broker.kill()


async def user(shell: Shell, *arguments: str | Path, secret: str = "", status: int = 0) -> str:
    """Runs `gapless user ARGUMENTS…`; what it printed on both outputs."""
    given = ["--password-stdin"] if secret else []
    done = await asyncio.to_thread(shell.run, "user", *arguments, *given, stdin=secret, status=status)
    return done.stdout + done.stderr


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


async def test_the_first_user_is_made_while_the_broker_is_stopped(shell: Shell, broker: BrokerProcess) -> None:
    config = broker.directory / "gapless.toml"
    await broker.start()
    assert "in use" in await user(shell, "add", "ada", "--config", config, secret="S3CRET", status=1)
    await broker.stop()
    await user(shell, "add", "ada", "--config", config, secret="S3CRET")

    await broker.start()
    assert await welcomes(broker, "ada", "S3CRET")
    assert not await welcomes(broker, "ada", "s3cret")
    assert not await welcomes(broker, "bob", "S3CRET")
    assert "the password is wrong" in broker.log
    assert "there is no such user" in broker.log
    assert "S3CRET" not in broker.log


async def test_users_of_a_broker_that_serves_survive_its_end(shell: Shell, broker: BrokerProcess) -> None:
    await broker.start()
    await user(shell, "add", "ada", "--url", broker.url, "--group", "ops", secret="one")
    assert await welcomes(broker, "ada", "one")

    await broker.restart()
    assert await welcomes(broker, "ada", "one")
    assert '"groups": ["ops"]' in await user(shell, "list", "--url", broker.url, "--json")


async def test_who_is_removed_or_has_another_password_has_to_go(shell: Shell, broker: BrokerProcess) -> None:
    await broker.start()
    nobody = await gapless.connect(broker.url)
    for name in ("ada", "bob"):
        await nobody.add_user(name, "one")
    ada = await gapless.connect(broker.url, credentials=Password("ada", "one"))
    bob = await gapless.connect(broker.url, credentials=Password("bob", "one"))
    publisher = nobody.session().publisher("flights")
    await publisher.send(b"before")

    await user(shell, "password", "ada", "--url", broker.url, secret="two")
    with pytest.raises(AuthenticationError, match="the password of user 'ada' was changed: connect with the new one"):
        await bounded(until_it_fails(ada))
    assert await welcomes(broker, "ada", "two")
    assert not await welcomes(broker, "ada", "one")
    await bob.pubends()

    await user(shell, "remove", "bob", "--url", broker.url)
    with pytest.raises(AuthenticationError, match="user 'bob' was removed"):
        await bounded(until_it_fails(bob))
    assert not await welcomes(broker, "bob", "one")
    await publisher.send(b"the others notice nothing")
    for connection in (ada, bob, nobody):
        await connection.close()
    await until(lambda: "user 'bob' was removed" in broker.log, "a line of the removal in the log")


async def test_whoever_changes_the_own_password_goes_on(broker: BrokerProcess) -> None:
    """Every other session of the same user ends."""
    await broker.start()
    async with gapless.connect(broker.url) as nobody:
        await nobody.add_user("ada", "one")
    here = await gapless.connect(broker.url, credentials=Password("ada", "one"))
    elsewhere = await gapless.connect(broker.url, credentials=Password("ada", "one"))

    await here.change_password("ada", "two")
    await here.pubends()
    with pytest.raises(AuthenticationError):
        await bounded(until_it_fails(elsewhere))

    assert here.connected
    for connection in (here, elsewhere):
        await connection.close()


async def test_from_another_machine_only_the_own_password_is_changed(tmp_path: Path) -> None:
    """A listener for every interface can be reached by others, whoever comes through it."""
    everywhere, here = (f"{host}:{port}" for host, port in zip(("0.0.0.0", "127.0.0.1"), free_ports(2), strict=True))
    listen = [{"address": everywhere}, {"address": here}]
    async with BrokerProcess(tmp_path / "b", auth=AUTH, node={"insecure": True}, listen=listen) as broker:
        async with gapless.connect(f"gapless://{here}") as nobody:
            await nobody.add_user("ada", "one")
        async with gapless.connect(broker.url, credentials=Password("ada", "one")) as connection:
            for asking in (
                connection.users(),
                connection.add_user("bob", "x"),
                connection.change_password("bob", "x"),
                connection.change_groups("ada", ["admin"]),
                connection.remove_user("ada"),
            ):
                with pytest.raises(gapless.AuthorizationError, match="own password"):
                    await asking
            await connection.change_password("ada", "two")
        assert await welcomes(broker, "ada", "two")


async def test_a_file_of_users_is_read_by_a_broker_that_serves(tmp_path: Path) -> None:
    """It looks once a second; whoever is removed there, or has another password, has to go."""
    file = tmp_path / "users"
    ada, bob, zoe, other = (UserRow(new_verifier(secret), (), 1) for secret in ("one", "two", "three", "four"))
    write_users(file, {"ada": ada, "zoe": zoe})
    async with BrokerProcess(tmp_path / "b", auth=[{"plugin": "scram", "users": str(file), "delays": False}]) as broker:
        first = await gapless.connect(broker.url, credentials=Password("ada", "one"))
        third = await gapless.connect(broker.url, credentials=Password("zoe", "three"))
        file.write_text('{"name": "ada"', "utf-8")
        await broker.until_logged(r"line 1 is no user.* count \(credentials_unusable\)")
        assert await welcomes(broker, "ada", "one")
        write_users(file, {"bob": bob, "zoe": other})
        await broker.until_logged(r"it is over that .*credentials_unusable")
        await broker.until_logged("there are 2")
        for gone, why in ((first, "user 'ada' was removed"), (third, "the password of user 'zoe' was changed")):
            with pytest.raises(AuthenticationError, match=why):
                await bounded(until_it_fails(gone))
        assert await welcomes(broker, "zoe", "four")
        async with gapless.connect(broker.url, credentials=Password("bob", "two")) as second:
            alarms = (await second.status()).alarms
            assert [alarm.over for alarm in alarms if alarm.code == "credentials_unusable"] == [True]
            with pytest.raises(gapless.ConfigurationError, match="gapless user --file"):
                await second.add_user("eve", "x")
        for connection in (first, third):
            await connection.close()

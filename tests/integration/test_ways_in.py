"""Every way into a broker hands over the credentials: each is let in with the right ones, and told with wrong ones."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

import gapless
from gapless import jms
from gapless.cli.app import app
from gapless.cli.connecting import address_for_workers
from gapless.client.credentials import PASSWORD_FILE
from gapless.core.server.users import UserRow
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless.security.users import new_verifier, write_users
from gapless_spark import connections
from gapless_spark.options import source_options
from gapless_spark.pipelines import broker as pipelines
from gapless_spark.writing import sink_options

RIGHT, WRONG = "S3CRET-right", "S3CRET-wrong"
NOT_VALID = "the credentials are not valid here"


class Door:
    """A broker that lets in the user `ann` and whoever has a token, and nobody else; in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        (folder / "jwks.json").write_text(json.dumps({"keys": [jwk]}), "utf-8")
        write_users(folder / "users", {"ann": UserRow(new_verifier(RIGHT), (), 0)})
        self.events = folder / "events.jsonl"
        self.events.write_text('{"body": "x"}\n', "utf-8")
        self.files = {password: self._file(password) for password in (RIGHT, WRONG)}
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        self._is_up.wait()

    def _file(self, secret: str) -> Path:
        file = self.folder / f"file of {len(secret)} {secret[-5:]}"
        file.write_text(f"{secret}\n", "utf-8")
        return file

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        token = {"jwks": str(self.folder / "jwks.json"), "issuer": "i", "audience": "a", "algorithms": ["ES256"]}
        scram = {"plugin": "scram", "users": str(self.folder / "users"), "delays": False}
        settings: dict[str, Any] = {
            "storage": {"plugin": "memory", "path": ""},
            "listen": [{"address": "127.0.0.1:0"}],
            "auth": [scram, {"plugin": "token", **token}],
        }
        try:
            node = await Node.start(make_config(settings))
            self.address = node.addresses[0]
        finally:
            self._is_up.set()
        await self._end.wait()
        await node.stop()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    def token(self, *, is_valid: bool) -> str:
        key = self.key if is_valid else ec.generate_private_key(ec.SECP256R1())
        return jwt.encode({"sub": "bot", "iss": "i", "aud": "a", "exp": 1 << 33}, key, "ES256")

    @property
    def url(self) -> str:
        return f"gapless://{self.address}"

    def url_of(self, password: str) -> str:
        return f"gapless://ann@{self.address}?password_file={self.files[password]}"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    door = Door(tmp_path_factory.mktemp("door"))
    yield door
    door.close()


async def _pubends(url: str, **given: Any) -> None:
    async with gapless.connect(url, **given) as connection:
        assert len(await connection.pubends()) > 0


def _pubends_of(connection: gapless.sync.Connection) -> None:
    with connection:
        assert len(connection.pubends()) > 0


def _command(*arguments: str) -> None:
    result = CliRunner().invoke(app, arguments)
    if result.exit_code:
        raise result.exception if isinstance(result.exception, gapless.GaplessError) else CommandError(result.output)


class CommandError(Exception):
    """A command has failed, and said this."""


def _in_jms(factory: jms.ConnectionFactory) -> None:
    with factory.create_context() as context:
        context.set_client_id("desk-7")  # connects again, with the same credentials
        context.create_producer().send(context.create_topic("flights"), "x")


def _doctor(door: Door, user: str) -> None:
    result = CliRunner().invoke(app, ["doctor", "--url", door.url, "--user", user, "--json"])
    broker = json.loads(result.stdout)["broker"]
    if not broker["answers"]:
        raise CommandError(broker["reason"])


def _users(door: Door) -> None:
    """Whoever is let in hears that they are in a file."""
    try:
        _command("user", "list", "--url", door.url, "--user", "ann")
    except CommandError as error:
        if "the users here are those of the file" not in str(error):
            raise


def _spark(options: Any) -> None:
    _pubends_of(connections.connect(options.brokers, options.client_id, 10))


def _shared(options: Any) -> None:
    with connections.shared_connection(options.brokers, options.client_id, 10) as connection:
        assert len(connection.pubends()) > 0


def _pipeline(url: str, **given: Any) -> None:
    with pipelines.connected(url, **given) as connection:
        assert len(connection.pubends()) > 0


Way: TypeAlias = "Callable[[Door, str], None]"

BY_ARGUMENT: dict[str, Way] = {
    "connect": lambda door, word: asyncio.run(_pubends(door.url, credentials=gapless.Password("ann", word))),
    "blocking": lambda door, word: _pubends_of(
        gapless.sync.connect(door.url, credentials=gapless.Password("ann", word))
    ),
    "jms": lambda door, word: _in_jms(jms.ConnectionFactory(door.url, user="ann", password=word)),
    "pipelines": lambda door, word: _pipeline(door.url, credentials=gapless.Password("ann", word)),
}
BY_ADDRESS: dict[str, Way] = {
    "connect": lambda door, word: asyncio.run(_pubends(door.url_of(word))),
    "blocking": lambda door, word: _pubends_of(gapless.sync.connect(door.url_of(word))),
    "jms": lambda door, word: _in_jms(jms.ConnectionFactory(door.url_of(word))),
    "command": lambda door, word: _command("pubends", "--url", door.url_of(word)),
    "spark": lambda door, word: _spark(source_options({"brokers": door.url_of(word)}, streaming=False)),
    "spark's workers": lambda door, word: _shared(sink_options({"brokers": door.url_of(word)})),
    "pipelines": lambda door, word: _pipeline(door.url_of(word)),
}
BY_OPTIONS: dict[str, Way] = {
    "spark": lambda door, word: _spark(
        source_options({"brokers": door.address, "user": "ann", "passwordfile": str(door.files[word])}, streaming=False)
    ),
    "spark's workers": lambda door, word: _shared(
        sink_options({"brokers": door.address, "gapless.user": "ann", "passwordFile": str(door.files[word])})
    ),
}
IN_ENVIRONMENT: dict[str, Way] = {
    "connect": lambda door, _: asyncio.run(_pubends(f"gapless://ann@{door.address}")),
    "publish": lambda door, _: _command("publish", "flights", "-m", "x", "--url", door.url, "--user", "ann"),
    "publish lines": lambda door, _: _command(
        "publish", "flights", str(door.events), "--url", door.url, "--user", "ann"
    ),
    "subscribe": lambda door, _: _command(
        *("subscribe", "s", "--topic", "flights", "--start", "earliest", "--count", "1"),
        *("--url", door.url, "--user", "ann"),
    ),
    "unsubscribe": lambda door, _: _command("unsubscribe", "s", "--url", door.url, "--user", "ann"),
    "subscriptions": lambda door, _: _command("subscriptions", "--url", door.url, "--user", "ann"),
    "users": lambda door, _: _users(door),
    "pubends": lambda door, _: _command("pubends", "--url", door.url, "--user", "ann"),
    "tail": lambda door, _: _command(
        "tail", "flights", "--last", "1", "--no-follow", "--url", door.url, "--user", "ann"
    ),
    "doctor": lambda door, _: _doctor(door, "ann"),
    "user in an address": lambda door, _: _command("pubends", "--url", f"gapless://ann@{door.address}"),
    "spark": lambda door, _: _spark(source_options({"brokers": door.address, "user": "ann"}, streaming=False)),
    "pipelines": lambda door, _: _pipeline(address_for_workers(door.url, "ann")),
}


def check(way: Way, door: Door) -> None:
    """The right ones are let in, and the wrong ones told; nobody repeats a secret."""
    way(door, RIGHT)
    with pytest.raises(Exception, match=NOT_VALID) as error:
        way(door, WRONG)
    assert isinstance(error.value, (gapless.AuthenticationError, jms.JMSSecurityError, CommandError))
    assert "S3CRET" not in str(error.value)


@pytest.mark.parametrize("name", BY_ARGUMENT)
def test_credentials_are_an_argument(name: str, door: Door) -> None:
    check(BY_ARGUMENT[name], door)


@pytest.mark.parametrize("name", BY_ADDRESS)
def test_credentials_are_in_a_file_that_the_address_names(name: str, door: Door) -> None:
    check(BY_ADDRESS[name], door)


@pytest.mark.parametrize("name", BY_OPTIONS)
def test_credentials_are_in_a_file_that_an_option_names(name: str, door: Door) -> None:
    check(BY_OPTIONS[name], door)


@pytest.mark.parametrize("name", IN_ENVIRONMENT)
def test_the_password_is_in_a_file_that_the_environment_names(
    name: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def way(door: Door, word: str) -> None:
        monkeypatch.setenv(PASSWORD_FILE, str(door.files[word]))
        IN_ENVIRONMENT[name](door, word)

    check(way, door)


def test_a_command_asks_for_the_password_if_nothing_says_it(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def way(door: Door, word: str) -> None:
        def getpass(prompt: str) -> str:
            asked.append(prompt)
            return word

        monkeypatch.setattr("getpass.getpass", getpass)
        _command("pubends", "--url", door.url, "--user", "ann")
        _command("pubends", "--url", f"gapless://ann@{door.address}")

    check(way, door)
    assert asked == ["Password of ann: "] * 3


@pytest.mark.parametrize("kind", ["text", "function", "coroutine function", "file", "address", "option"])
def test_a_token_is_taken_too(kind: str, door: Door, tmp_path: Path) -> None:
    def way(door: Door, word: str) -> None:
        token = door.token(is_valid=word == RIGHT)
        (tmp_path / "token").write_text(token, "utf-8")

        async def coroutine() -> str:
            return token

        if kind == "address":
            asyncio.run(_pubends(f"{door.url}?token_file={tmp_path / 'token'}"))
        elif kind == "option":
            options = {"brokers": door.address, "tokenFile": str(tmp_path / "token")}
            _spark(source_options(options, streaming=False))
        else:
            sources: dict[str, gapless.BearerToken] = {
                "text": gapless.BearerToken(token),
                "function": gapless.BearerToken(lambda: token),
                "coroutine function": gapless.BearerToken(coroutine),
                "file": gapless.BearerToken.from_file(tmp_path / "token"),
            }
            asyncio.run(_pubends(door.url, credentials=sources[kind]))

    check(way, door)


def test_who_says_nothing_is_told_what_the_broker_takes(door: Door) -> None:
    with pytest.raises(gapless.AuthenticationError, match="this broker takes scram, token; the client offers no"):
        gapless.sync.connect(door.url)


async def test_a_token_that_expires_is_renewed_in_the_same_session(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ends: list[int] = []

    def token() -> str:
        ends.append(int(time.time()) + 2)
        claims = {"sub": "bot", "iss": "i", "aud": "a", "exp": ends[-1] - 60}  # clocks may differ by a minute
        return jwt.encode(claims, door.key, "ES256")

    async with gapless.connect(door.url, client_id="bot-1", credentials=gapless.BearerToken(token)) as connection:
        while time.time() < ends[0] + 0.2:
            assert len(await connection.pubends()) > 0
            await asyncio.sleep(0.05)

    assert len(ends) > 1
    assert caplog.text.count("client 'bot-1' has connected") == 1, "it went on behind the end of the first one"

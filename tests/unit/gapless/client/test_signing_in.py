"""A connection that says who it is: who is asked for credentials, when, and what is told of those that are missing."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.client import driver
from gapless.core.wire import messages as m
from gapless.security.binding import end_point
from unit.gapless.client.conftest import ADDRESS, until
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.guarded import Tokens, users

SECRET = "S3CRET"


@pytest.fixture
def guarded(network: FakeNetwork) -> FakeNetwork:
    """The broker lets in `ann` with her password, and whoever has the token of `bot`."""
    network.broker.authenticators = [users(ann=SECRET), Tokens(bot="S3CRET.1", other="S3CRET.2")]
    return network


async def test_a_password_and_a_token_are_taken(guarded: FakeNetwork) -> None:
    for credentials in (gapless.Password("ann", SECRET), gapless.BearerToken("S3CRET.1")):
        async with gapless.connect(ADDRESS, credentials=credentials) as connection:
            assert connection.connected
            assert "S3CRET" not in repr(connection)

    assert guarded.broker.admitted == ["ann", "bot"]
    assert SECRET.encode() not in b"".join(hello.credentials for hello in guarded.broker.messages(m.Hello)[:1])


@pytest.mark.parametrize(
    "credentials",
    [gapless.Password("ann", "wrong"), gapless.Password("eve", SECRET), gapless.BearerToken("wrong")],
    ids=["another password", "another user", "another token"],
)
@pytest.mark.parametrize("wait", [False, True])
async def test_wrong_ones_end_it_at_once_however_patient_it_is(
    credentials: Any,
    wait: bool,
    guarded: FakeNetwork,
) -> None:
    with pytest.raises(gapless.AuthenticationError, match="the credentials are not valid here") as error:
        await gapless.connect(ADDRESS, credentials=credentials, wait=wait)

    assert len(guarded.dialled) == 1
    assert isinstance(error.value, gapless.ConnectionRefusedByBrokerError)
    assert isinstance(pickle.loads(pickle.dumps(error.value)), gapless.AuthenticationError)


async def test_wrong_ones_are_told_if_another_broker_is_away(
    guarded: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    dial = guarded.dial

    async def dial_here(address: str, accept: Any) -> Any:
        guarded.unreachable = address == "two"
        return await dial(address, accept)

    monkeypatch.setattr(guarded, "dial", dial_here)
    with pytest.raises(
        gapless.AuthenticationError, match=r"lets this client in: one: the credentials .*; two: nobody there"
    ):
        await gapless.connect("gapless+fake://one,two", credentials=gapless.Password("ann", "wrong"))


async def test_a_connection_ends_whose_password_was_changed(guarded: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS, credentials=gapless.Password("ann", SECRET)) as connection:
        guarded.broker.authenticators = [users(ann="new")]
        async with connection.session() as session, session.subscribe("t", name="s") as subscription:
            guarded.cut()
            with pytest.raises(gapless.AuthenticationError):
                await anext(subscription)

    assert len(guarded.dialled) == 2


async def test_the_link_is_bound_to_the_certificate_that_was_shown(guarded: FakeNetwork) -> None:
    shown: list[tuple[bytes, bool]] = []

    class Own:
        mechanism = "token"

        async def ask(self, *, is_local: bool) -> Any:
            assert is_local
            return self

        def first(self, binding: bytes, *, secure: bool) -> bytes:
            shown.append((binding, secure))
            return b"S3CRET.1"

        def check_welcome(self) -> None: ...

        def answer(self, challenge: bytes) -> bytes:
            raise NotImplementedError

    guarded.shown = b"a certificate"
    async with gapless.connect(ADDRESS, credentials=Own()) as connection:
        assert connection.connected

    assert shown == [(end_point(b"a certificate"), True)]


async def test_a_token_is_asked_for_anew_before_each_try(guarded: FakeNetwork) -> None:
    tokens = ["S3CRET.1", "S3CRET.2"]
    async with gapless.connect(ADDRESS, credentials=gapless.BearerToken(lambda: tokens.pop(0))) as connection:
        guarded.cut()
        await until(lambda: connection.connected and len(guarded.broker.admitted) == 2)

    assert guarded.broker.admitted == ["bot", "other"]


async def test_a_token_is_renewed_before_it_expires(guarded: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.core.client.renewal.SOONEST", 10_000_000)
    guarded.broker.expires_ms = 60
    tokens = ["S3CRET.1", "S3CRET.2"]

    async def token() -> str:
        return tokens.pop(0) if len(tokens) > 1 else tokens[0]

    async with gapless.connect(ADDRESS, credentials=gapless.BearerToken(token)):
        await until(lambda: len(guarded.broker.admitted) >= 3)

    assert guarded.broker.admitted[:3] == ["bot", "other", "other"]
    assert len(guarded.broker.messages(m.Hello)) == 1


async def test_why_there_is_no_token_is_told_to_whoever_connects(guarded: FakeNetwork) -> None:
    def token() -> str:
        raise LookupError("the vault is shut")

    with pytest.raises(gapless.AuthenticationError, match="no credentials: LookupError: the vault is shut") as error:
        await gapless.connect(ADDRESS, credentials=gapless.BearerToken(token))

    assert isinstance(error.value.__cause__, LookupError)
    assert guarded.dialled == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_who_waits_for_a_broker_waits_for_a_token_too(
    guarded: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    async def token() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise LookupError("the vault is shut")
        return "S3CRET.1"

    async with gapless.connect(ADDRESS, credentials=gapless.BearerToken(token), wait=True) as connection:
        assert connection.connected

    assert len(tries) == 2
    assert "there are no credentials: LookupError: the vault is shut" in caplog.text


async def test_a_later_failure_is_told_in_the_log_and_it_goes_on(
    guarded: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = ["S3CRET.1", LookupError("the vault is shut"), "S3CRET.2"]

    def token() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    async with gapless.connect(ADDRESS, credentials=gapless.BearerToken(token)) as connection:
        guarded.cut()
        await until(lambda: connection.connected and len(guarded.broker.admitted) == 2)

    assert "the vault is shut" in caplog.text


@pytest.mark.parametrize("wait", [False, True])
async def test_a_file_that_is_not_there_ends_it_at_once(
    wait: bool,
    guarded: FakeNetwork,
    tmp_path: Path,
) -> None:
    with pytest.raises(gapless.ConfigurationError, match="pw, which is to have the credentials in it, is not there"):
        await gapless.connect(ADDRESS, credentials=gapless.Password.from_file("ann", tmp_path / "pw"), wait=wait)

    assert guarded.dialled == []


@pytest.mark.parametrize("is_async", [False, True], ids=["a function", "a coroutine function"])
async def test_who_gives_up_while_it_waits_for_a_token_leaves_nothing_behind(
    is_async: bool,
    guarded: FakeNetwork,
) -> None:
    import threading

    end = threading.Event()

    async def awaited() -> str:
        await asyncio.Event().wait()
        return ""

    def plain() -> str:
        end.wait()
        return "S3CRET.1"

    async def begin() -> None:
        await gapless.connect(ADDRESS, credentials=gapless.BearerToken(awaited if is_async else plain))

    connecting = asyncio.ensure_future(begin())
    await asyncio.sleep(0.02)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    end.set()

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert guarded.dialled == []


async def test_a_token_that_does_not_come_is_given_up(guarded: FakeNetwork) -> None:
    async def token() -> str:
        await asyncio.Event().wait()
        return ""

    from random import Random

    from gapless.client.credentials import asks
    from gapless.core.client import ClientCore, ClientSettings
    from gapless.core.client.link.attempts import Attempts

    core = ClientCore(
        ["x"],
        client_id="c",
        instance="i",
        attempts=Attempts("p"),
        random=Random(1),
        has_credentials=True,
        settings=ClientSettings(credentials=20_000_000),
    )
    ask = asks(gapless.BearerToken(token), lambda _address: True)
    run = driver.Driver(core, guarded.dial, ask, identifies=False, patient=False)
    with pytest.raises(gapless.ConnectionClosedError, match="the credentials did not come in time"):
        await run.start()

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_no_secret_is_in_logs_and_errors(guarded: FakeNetwork, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = []
    for credentials in (gapless.Password("ann", f"{SECRET}-wrong"), gapless.BearerToken(f"{SECRET}-wrong")):
        try:
            await gapless.connect(ADDRESS, credentials=credentials)
        except gapless.AuthenticationError as error:
            said.append("".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()))
    async with gapless.connect(ADDRESS, credentials=gapless.Password("ann", SECRET)) as connection:
        guarded.cut()
        await until(lambda: connection.connected and len(guarded.broker.admitted) == 2)

    assert len(said) == 2
    assert "S3CRET" not in "".join(line for text in said for line in text.splitlines() if "gapless.connect" not in line)
    assert "S3CRET" not in caplog.text
    assert "connected again" in caplog.text

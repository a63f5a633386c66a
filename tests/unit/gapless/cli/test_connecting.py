"""A connection for one command, with a bound on waiting."""

from __future__ import annotations

import asyncio
import socket
from getpass import GetPassWarning
from pathlib import Path

import pytest

from conformance.transports import write_certificates
from gapless import ConfigurationError, ConnectionClosedError, Password
from gapless.cli.connecting import address_for_workers, connected, credentials_of, run, within
from gapless_testing.transport.ends import End
from gapless_transport import tcp
from unit.gapless.client.conftest import ADDRESS, network
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.guarded import users

__all__ = ["network"]


async def test_what_comes_in_time_is_returned() -> None:
    assert await within(60, asyncio.sleep(0, "here"), "too late") == "here"


async def test_what_does_not_come_is_given_up() -> None:
    waiting = asyncio.ensure_future(asyncio.Event().wait())

    with pytest.raises(ConnectionClosedError, match="too late"):
        await within(0.01, waiting, "too late")

    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def test_what_fails_raises() -> None:
    async def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await within(60, fail(), "too late")


async def test_a_broker_that_accepts_and_stays_silent_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"gapless://127.0.0.1:{server.getsockname()[1]}"

        with pytest.raises(ConnectionClosedError, match="no answer for"):
            async with connected(url, "", 0.05, None):
                pass


async def test_only_where_nobody_is_there_it_says_how_to_start_a_broker(tmp_path: Path) -> None:
    """A broker that cannot be trusted, or does not speak as it is spoken to, is there."""
    files = write_certificates(tmp_path, "127.0.0.1")
    transport = tcp.open_transport(options={"certificate": files["certificate"], "key": files["key"]})
    listener = await transport.listen("127.0.0.1:0", End().accept)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    said = {}
    for name, url in {
        "nobody": f"gapless://127.0.0.1:{port}",
        "a wrong CA": f"gapless+tls://{listener.address}",
        "in the clear": f"gapless://{listener.address}",
    }.items():
        with pytest.raises(ConnectionClosedError) as error:
            async with connected(url, "", 20, None):
                pass
        said[name] = str(error.value)
    await listener.close()

    assert "`gapless broker` starts a broker" in said["nobody"]
    assert "its certificate is not trusted" in said["a wrong CA"]
    assert "`ca` names the file" in said["a wrong CA"]
    assert "('" not in said["a wrong CA"], "no repr of a tuple"
    assert "it may speak TLS (gapless+tls://…)" in said["in the clear"]
    assert not any("starts a broker" in said[name] for name in ("a wrong CA", "in the clear"))


def test_a_command_is_a_coroutine_and_runs_with_uvloop_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    async def which() -> str:
        return type(asyncio.get_running_loop()).__module__

    pytest.importorskip("uvloop")
    assert run(which()).startswith("uvloop")
    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    assert run(which()).startswith("asyncio")


async def test_what_needs_longer_is_waited_for_as_much_longer() -> None:
    longer = 0.0

    async def work() -> str:
        nonlocal longer
        longer = 60
        await asyncio.sleep(0.1)
        return "done"

    assert await within(0.05, work(), "too late", lambda: longer) == "done"
    with pytest.raises(ConnectionClosedError, match="too late"):
        await within(0.05, asyncio.sleep(60), "too late", lambda: 0.05)


async def test_a_broker_that_delays_its_answer_is_waited_for(network: FakeNetwork) -> None:
    """After wrong passwords of somebody; the command itself has but a moment."""
    network.broker.delay = 0.2
    network.broker.authenticators = [users(ann="S3CRET")]

    async with connected(ADDRESS, "", 0.1, Password("ann", "S3CRET")) as connection:
        assert connection.connected


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that somebody has answered; none is answered with a file in the environment."""
    prompts: list[str] = []

    def getpass(prompt: str) -> str:
        prompts.append(prompt)
        return "S3CRET"

    monkeypatch.setattr("getpass.getpass", getpass)
    monkeypatch.delenv("GAPLESS_PASSWORD_FILE", raising=False)
    return prompts


@pytest.mark.parametrize(
    ("url", "user", "file", "credentials", "prompts"),
    [
        ("gapless://a", "", "", "None", 0),
        ("gapless://a", "", "/run/pw", "None", 0),
        ("embedded:", "", "", "None", 0),
        ("gapless://a", "ann", "", "Password('ann', …)", 1),
        ("gapless+ws://a", "ann", "", "Password('ann', …)", 1),
        ("gapless://ann@a", "", "", "Password('ann', …)", 1),
        ("gapless://ann@a", "ann", "", "Password('ann', …)", 1),
        ("gapless://a", "ann", "/run/pw", "Password('ann', '/run/pw')", 0),
        ("gapless://ann@a", "", "/run/pw", "None", 0),
        ("gapless://ann@a?password_file=/x", "", "", "None", 0),
        ("gapless://ann@a?password_file=/x", "ann", "", "None", 0),
        ("gapless://a?token_file=/x", "", "", "None", 0),
    ],
)
def test_a_password_is_asked_for_if_nothing_says_where_it_is(
    url: str, user: str, file: str, credentials: str, prompts: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: the address says it all."""
    if file:
        monkeypatch.setenv("GAPLESS_PASSWORD_FILE", file)

    assert repr(credentials_of(url, user)) == credentials
    assert asked == ["Password of ann: "] * prompts


@pytest.mark.parametrize("url", ["gapless://bob@a", "gapless://a?token_file=/x"])
def test_who_it_is_is_said_once(url: str, asked: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="--user says 'ann', and the address says something else"):
        credentials_of(url, "ann")

    assert asked == []


@pytest.mark.parametrize("problem", [EOFError(), GetPassWarning("it would be seen")])
def test_where_nobody_can_be_asked_that_is_said(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def getpass(_prompt: str) -> str:
        raise problem

    monkeypatch.setattr("getpass.getpass", getpass)
    monkeypatch.delenv("GAPLESS_PASSWORD_FILE", raising=False)
    with pytest.raises(ConfigurationError, match="nobody is there to be asked for the password of 'ann'"):
        credentials_of("gapless://a", "ann")


def test_other_processes_are_told_a_file_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAPLESS_PASSWORD_FILE", raising=False)
    assert address_for_workers("gapless://a", "") == "gapless://a"
    with pytest.raises(ConfigurationError, match="read the password of 'ann' from a file"):
        address_for_workers("gapless://a", "ann")
    monkeypatch.setenv("GAPLESS_PASSWORD_FILE", "/run/pw")

    assert address_for_workers("gapless://a", "ann") == "gapless://ann@a?password_file=/run/pw"

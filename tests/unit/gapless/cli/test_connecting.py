"""A connection for one command, with a bound on waiting."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from conformance.transports import write_certificates
from gapless import ConnectionClosedError
from gapless.cli.connecting import connected, run, within
from gapless_testing.transport.ends import End
from gapless_transport import tcp


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

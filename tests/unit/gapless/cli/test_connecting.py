"""A connection for one command, with a bound on waiting."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gapless import ConnectionClosedError
from gapless.cli.connecting import connected, run, within


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
            async with connected(url, "", 0.05):
                pass


def test_a_command_is_a_coroutine_and_runs_with_uvloop_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    async def which() -> str:
        return type(asyncio.get_running_loop()).__module__

    pytest.importorskip("uvloop")
    assert run(which()).startswith("uvloop")
    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    assert run(which()).startswith("asyncio")

"""A text that nothing can be written with is refused in its own call, on every path, and nobody else notices.

Python's texts can hold half a surrogate pair: `json.loads` gives them, and a command line with bytes that are no UTF-8.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from subprocess import run
from typing import Any

import msgspec
import pytest

import gapless
import gapless.sync
from gapless.core.wire.messages import Closing
from integration.bad_messages import requests, welcome_client
from integration.bystander import Bystander
from integration.raw_client import payload

pytestmark = pytest.mark.timeout(120)

HALF = "\ud800"
TOKEN = gapless.CheckpointToken("net", {"a@1": 1})

ASYNC: dict[str, Callable[[gapless.Connection, gapless.Session], Any]] = {
    "topic": lambda _, s: s.subscribe("t." + HALF),
    "second topic": lambda _, s: s.subscribe("t", HALF),
    "name": lambda _, s: s.subscribe("t", name="n" + HALF),
    "selector": lambda _, s: s.subscribe("t", selector=f"a = '{HALF}'"),
    "choice": lambda _, s: s.subscribe("t", in_use=HALF),  # type: ignore[call-overload]
    "start": lambda _, s: s.subscribe("t", start=HALF),
    "publisher's topic": lambda _, s: s.publisher("t." + HALF).send(b""),
    "publisher's name": lambda _, s: s.publisher("t", name="p" + HALF).send(b""),
    "event's topic": lambda _, s: s.publisher().send(b"", topic=HALF),
    "property": lambda _, s: s.publisher("t").send(b"", {"a": HALF}),
    "key": lambda _, s: s.publisher("t").send(b"", {HALF: 1}),
    "type": lambda _, s: s.publisher("t").send(b"", type=HALF),
    "correlation id": lambda _, s: s.publisher("t").send(b"", correlation_id=HALF),
    "reply to": lambda _, s: s.publisher("t").send(b"", reply_to=HALF),
    "batch": lambda _, s: s.publisher("t").send_batch([gapless.Message(b"", {"a": HALF})]),
    "transform": lambda _, s: s.transform("t", to="u", name="x" + HALF),
    "attach": lambda c, _: c.attach("n", "t", selector=f"a = '{HALF}'"),
    "attach's name": lambda c, _: c.attach(HALF, "t"),
    "heads": lambda c, _: c.heads(HALF),
    "earliest": lambda c, _: c.earliest(HALF),
    "ack": lambda c, _: c.ack(HALF, TOKEN),
    "lease": lambda c, _: c.lease("n", HALF),
    "range's pubend": lambda c, _: anext(c.read_range("n", HALF, 0, 1)),
    "producer": lambda c, _: c.publish(HALF, 0, 0, [gapless.Message(b"")], topic="t"),
    "keyed topic": lambda c, _: c.publish("p", 0, 0, [gapless.Message(b"")], topic=HALF),
    "keyed property": lambda c, _: c.publish("p", 0, 0, [gapless.Message(b"", {"a": HALF})], topic="t"),
    "unsubscribe": lambda c, _: c.unsubscribe(HALF),
    "unsubscribe's client": lambda c, _: c.unsubscribe("n", client_id=HALF),
    "status": lambda c, _: c.status(HALF),
    "retire": lambda c, _: c.retire(HALF),
    "connect": lambda _c, _s: gapless.connect(f"gapless://{HALF}"),
    "client id": lambda _c, _s: gapless.connect("embedded:", client_id=HALF),
}
"""Every call that takes a text, with one that cannot be written."""


async def awaited(call: Callable[[], Any]) -> None:
    made: Awaitable[object] = call()
    await asyncio.wait_for(made, 10)


async def test_a_text_that_cannot_be_written_fails_its_own_call_and_nobody_elses(
    bystander: Bystander, subtests: pytest.Subtests
) -> None:
    async with gapless.connect(f"gapless://{bystander.address}", client_id="c") as connection:
        async with connection.session() as session:
            for what, call in ASYNC.items():
                with subtests.test(what):
                    with pytest.raises(gapless.GaplessError):
                        await awaited(partial(call, connection, session))
                    assert len(await asyncio.wait_for(connection.pubends(), 10)) == 1
                    assert connection.connected
    assert bystander.is_undisturbed()


def test_the_same_of_the_blocking_calls(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with (
        gapless.sync.connect(f"embedded:{tmp_path / 'data'}", client_id="c") as connection,
        connection.session() as session,
    ):
        publisher = session.publisher("works")
        calls: dict[str, Callable[[], object]] = {
            "topic": lambda: session.subscribe("t." + HALF),
            "selector": lambda: session.subscribe("t", selector=f"a = '{HALF}'"),
            "name": lambda: session.subscribe("t", name=HALF),
            "publisher": lambda: session.publisher("t", name=HALF),
            "property": lambda: publisher.send(b"", {"a": HALF}),
            "attach": lambda: connection.attach("n", "t", selector=f"{HALF} = 1"),
            "unsubscribe": lambda: connection.unsubscribe("n", client_id=HALF),
            "status": lambda: connection.status(HALF),
            "range": lambda: connection.read_range("n", HALF, 0, 1),
            "client id": lambda: gapless.sync.connect("embedded:", client_id=HALF),
        }
        for what, call in calls.items():
            with subtests.test(what):
                with pytest.raises(gapless.GaplessError):
                    call()
                publisher.send(b"still", timeout=10)


@pytest.mark.parametrize(
    "arguments",
    [
        ("publish", b"t.\xff", os.devnull),
        ("subscribe", b"n\xff", "--topic", "t"),
        ("subscribe", "n", "--topic", b"\xff"),
        ("subscribe", "n", "--topic", "t", "--selector", b"a = '\xff'"),
        ("subscribe", "n", "--topic", "t", "--start", b"\xff"),
        ("subscribe", "n", "--topic", "t", "--client-id", b"\xff"),
        ("unsubscribe", b"n\xff"),
        ("unsubscribe", "n", "--client-id", b"\xff"),
        ("selector", b"a = '\xff'"),
        ("retire", b"\xff"),
    ],
    ids=repr,
)
async def test_an_argument_that_is_no_utf_8_is_not_understood(
    bystander: Bystander, arguments: tuple[str | bytes, ...]
) -> None:
    at = [] if arguments[0] == "selector" else ["--url", f"gapless://{bystander.address}"]
    command = [sys.executable, "-m", "gapless.cli", *arguments, *at]
    environment = {**os.environ, "PYTHONUTF8": "1"}

    done = await asyncio.to_thread(run, command, capture_output=True, timeout=60, env=environment, check=False)

    assert done.returncode == 2, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"gapless: ")
    assert bystander.is_undisturbed()


async def test_a_frame_whose_text_is_no_utf_8_ends_its_own_session_alone(
    bystander: Bystander, subtests: pytest.Subtests
) -> None:
    """Each text of each message in turn, as no client of ours can send it."""
    for message in requests("here@1", 5, 1):
        plain = msgspec.msgpack.encode(message)
        for text in texts_of(message):
            if plain.count(text) != 1:
                continue
            with subtests.test(f"{type(message).__name__} with {text!r}"):
                async with welcome_client(bystander) as client:
                    await client.send_payloads(payload(client.session, plain.replace(text, b"\xff" * len(text))))
                    *_, closing = await client.hear_all()

                assert isinstance(closing, Closing)
                assert closing.reason.startswith("protocol violation: ")
                assert bystander.is_undisturbed()


def texts_of(value: Any) -> list[bytes]:
    """The texts of a message, encoded: those that are long enough to be found."""
    if isinstance(value, str):
        return [value.encode()] if len(value) > 2 else []
    parts: Any = value if isinstance(value, (list, tuple)) else getattr(value, "__struct_fields__", ())
    inner = parts if isinstance(value, (list, tuple)) else [getattr(value, name) for name in parts]
    return [text for part in inner for text in texts_of(part)]

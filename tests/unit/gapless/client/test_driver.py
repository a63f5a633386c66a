"""The shell of the client's core: links, the timer, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gapless.client.driver import Driver, Recipient
from gapless.core.client import ClientCore, ClientSettings
from gapless.core.client.link.attempts import Attempts
from gapless.core.client.link.effects import SendFrames
from gapless.core.client.link.outbox import FRAMES_AT_ONCE
from gapless.core.wire import messages as m
from gapless.errors import ConnectionClosedError
from gapless.spi import Link, LinkHandler
from unit.gapless.client.conftest import until
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.core.client.harness import columns


def driver(network: Any, *, settings: ClientSettings | None = None, patient: bool = False) -> Driver:
    core = ClientCore(
        ["x"],
        client_id="c",
        instance="i",
        attempts=Attempts("p"),
        random=Random(1),
        has_credentials=False,
        settings=settings,
    )
    return Driver(core, network.dial, None, identifies=False, patient=patient)


async def test_what_happens_in_one_turn_leaves_in_one_send() -> None:
    network = FakeNetwork()
    run = driver(network)
    await run.start()
    sends = network.sends
    answers = [run.ask(run.core.list_pubends) for _ in range(10)]
    await asyncio.gather(*answers)

    assert network.sends == sends + 1
    await run.close()


async def test_the_limit_is_raised_before_larger_frames_come() -> None:
    network = FakeNetwork()
    network.broker.frame_bytes = 12345
    run = driver(network)
    await run.start()

    assert network.links[0].limit == 12345
    await run.close()


async def test_heartbeats_are_sent_and_missed_by_the_loops_clock() -> None:
    network = FakeNetwork()
    network.broker.heartbeat_ms = 20
    run = driver(network)
    await run.start()
    began = run.loop.time()
    await until(lambda: len(network.broker.messages(m.Heartbeat)) == 4)
    assert run.loop.time() - began >= 0.06

    network.broker.silent = True
    await until(lambda: len(network.dialled) == 2)
    await run.close()


async def test_a_dial_that_takes_too_long_is_given_up() -> None:
    class Nowhere:
        async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
            await asyncio.sleep(1000)
            raise AssertionError

    run = driver(Nowhere(), settings=ClientSettings(connect=20_000_000))
    with pytest.raises(ConnectionClosedError, match="did not answer in time"):
        await run.start()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_whatever_a_transport_raises_the_connection_goes_on_trying() -> None:
    network = FakeNetwork()
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context.get("exception")))

    class Odd:
        tries = 0

        async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
            self.tries += 1
            if self.tries == 1:
                raise ZeroDivisionError("a bug")
            return await network.dial(address, accept)

    run = driver(Odd(), patient=True)
    await run.start()
    assert run.core.connected
    await run.close()


async def test_close_waits_until_the_goodbye_has_left() -> None:
    network = FakeNetwork()
    run = driver(network)
    await run.start()
    link = network.links[0]
    await run.close()

    assert not link.open
    assert isinstance(network.broker.received[-1], m.Goodbye)
    await run.close()


async def test_a_question_that_nobody_waits_for_any_more() -> None:
    network = FakeNetwork()
    run = driver(network)
    await run.start()
    asked = run.ask(run.core.list_pubends)
    asked.cancel()
    await asyncio.sleep(0.01)
    network.cut()
    await asyncio.sleep(0)
    also = run.ask(run.core.list_pubends)
    also.cancel()
    await run.close()
    with pytest.raises(ConnectionClosedError):
        await run.ask(run.core.list_pubends)


async def test_a_bug_in_one_place_keeps_nothing_back_from_others() -> None:
    network = FakeNetwork()
    run = driver(network)
    await run.start()

    class Broken(Recipient):
        def on_answered(self, result: object) -> None:
            raise ZeroDivisionError

    run.register(run.core.list_pubends(run.now()), Broken())
    answer = run.ask(run.core.list_pubends)
    with pytest.raises(ZeroDivisionError):
        run.core.on_frames(run.core._outbox.link, _answers(network, run), run.now())
        run.pump()

    assert len((await answer).rows) == 1
    await run.close()


async def test_what_many_commands_of_a_turn_ask_for_leaves_in_portions() -> None:
    network = FakeNetwork()
    run = driver(network)
    await run.start()
    sends = network.sends

    questions = [run.ask(run.core.list_pubends) for _ in range(2 * FRAMES_AT_ONCE + 1)]
    assert network.sends == sends + 2
    await asyncio.gather(*questions)

    assert network.sends == sends + 3
    await run.close()


async def test_a_link_on_which_much_waits_has_room_when_that_has_left() -> None:
    network = FakeNetwork()
    run = driver(network, settings=ClientSettings(link_bytes=100))
    await run.start()
    link = network.links[0]
    number = run.core.open_publisher("p", "i", "t", run.now())
    run.touch()
    await asyncio.sleep(0.01)
    link.pending = 60
    for _ in range(2):
        run.core.publish(number, columns(b"x" * 120), (), run.now())
    run.touch()
    await asyncio.sleep(0.01)
    assert len(network.broker.messages(m.Publish)) == 1

    link.pending = 50
    assert link.handler is not None
    link.handler.on_drained()
    await asyncio.sleep(0.01)

    assert len(network.broker.messages(m.Publish)) == 2
    await run.close()


def _answers(network: FakeNetwork, run: Driver) -> list[bytes]:
    """What the broker says to all that was asked, at once."""
    link = network.links[0]
    for effect in run.core.take_effects():
        assert isinstance(effect, SendFrames)
        network.broker.frames(link.number, [p for p in effect.payloads if isinstance(p, bytes)])
    return [payload for _, payload in network.broker.take() if payload is not None]

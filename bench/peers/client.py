"""A client process of the race: it publishes, or it is some of the subscribers.

    python -m bench.peers.client publish SYSTEM ADDRESS TOPIC
    python -m bench.peers.client receive SYSTEM ADDRESS TOPIC SUBSCRIBERS

It takes orders, and answers, in lines of JSON over its standard input and output.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.peers.system import Publisher, System
from bench.peers.systems import SYSTEMS
from bench.peers.work import Subscriber, event, subscribers, tallies, visit


def say(**answer: Any) -> None:
    """One line to the process that runs the race."""
    print(json.dumps(answer), flush=True)


async def order() -> dict[str, Any] | None:
    """The next line from the process that runs the race; None when it has gone."""
    line = await asyncio.to_thread(sys.stdin.readline)
    asked: dict[str, Any] | None = json.loads(line) if line else None
    return asked


# ------------------------------------------------------------------------------------------ publishing


async def publish(system: System, address: str, topic: str) -> None:
    """Opens a publisher and does what it is told, until nobody is there to tell."""
    async with system.publisher(address, topic) as publisher:
        say(ready=True)
        while asked := await order():
            say(**await WAYS[asked.pop("way")](publisher, **asked))


async def single(publisher: Publisher, *, first: int, count: int) -> dict[str, Any]:
    """Each event when the one before is acknowledged."""
    events = [event(number) for number in range(first, first + count)]
    cpu, began = time.process_time(), time.perf_counter()
    took = []
    for each in events:
        start = time.perf_counter()
        await publisher.publish([each])
        took.append(time.perf_counter() - start)
    took.sort()
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "p50_seconds": took[count // 2],
    }


async def pipelined(publisher: Publisher, *, first: int, count: int) -> dict[str, Any]:
    """As fast as the system takes them."""
    events = [event(number) for number in range(first, first + count)]
    cpu, began = time.process_time(), time.perf_counter()
    await publisher.publish(events)
    return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}


async def paced(publisher: Publisher, *, count: int, per_second: int) -> dict[str, Any]:
    """A few every 10 ms, each stamped with the time at which it was due: being late counts as latency."""
    few = max(1, per_second // 100)
    cpu, began = time.process_time(), time.perf_counter()
    due = time.monotonic_ns()
    for start in range(0, count, few):
        due += few * 1_000_000_000 // per_second
        await asyncio.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        await publisher.publish([event(number, due) for number in range(start, min(start + few, count))])
    return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}


WAYS: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "single": single,
    "pipelined": pipelined,
    "paced": paced,
}


# ------------------------------------------------------------------------------------------- receiving


class Countdown:
    """Called by each of so many, in whatever thread: with the last of them, something happens."""

    def __init__(self, count: int, then: Callable[[], object]) -> None:
        self._left = count
        self._then = then
        self._lock = threading.Lock()

    def __call__(self) -> None:
        """One more."""
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._then()


async def receive(system: System, address: str, topic: str, mine: list[Subscriber]) -> None:
    """Is these subscribers: they show up to be known (`published` is 0), or take what was or will be published."""

    async def everyone(published: int, *, clocked: bool) -> dict[str, Any]:
        own = tallies(mine, published, clocked=clocked) if published else [visit() for _ in mine]
        cpu = time.process_time()

        def used() -> float:
            return time.process_time() - cpu

        def all_ready() -> None:
            say(cpu_ready_seconds=used())
            done()

        # Some are done before others are ready, but that all are done is said behind that all are ready.
        done = Countdown(
            1 + sum(not tally.done() for tally in own),
            lambda: say(done_ns=time.monotonic_ns(), cpu_seconds=used()),
        )
        ready = Countdown(len(mine), all_ready)
        for tally in own:
            tally.on_done = done

        await asyncio.gather(
            *(
                system.receive(address, topic, subscriber, tally, ready)
                for subscriber, tally in zip(mine, own, strict=True)
            )
        )
        return {
            "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "wrong": [s.name for s, tally in zip(mine, own, strict=True) if not tally.correct],
            "latencies_us": [each for tally in own for each in tally.latencies_us[len(tally.latencies_us) // 4 :]],
        }

    say(here=True)
    while asked := await order():
        say(**await everyone(asked["published"], clocked=asked["clocked"]))


def main(arguments: list[str]) -> None:
    """A client process."""
    import uvloop

    role, name, address, topic, *rest = arguments
    system = SYSTEMS[name]
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)  # as docs/howto/make-a-client-fast.md advises: for every system's clients
    if role == "publish":
        uvloop.run(publish(system, address, topic))
    else:
        uvloop.run(receive(system, address, topic, subscribers(**json.loads(rest[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])

"""A run: a broker, strikers and clients' processes, what is done to them, and how it all ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

import gapless
from chaos.history import gathered
from chaos.judge import Item, Verdict, judge
from chaos.nemesis import BROKER, HEARTBEAT_SECONDS, Fault, schedule
from chaos.plan import PUBENDS, SOURCES, checksum, subscriptions
from chaos.striker import Striker
from integration.broker_process import BrokerProcess, clean_environment

WORKER: Final = Path(__file__).with_name("worker.py")
CONSUMERS: Final = 6
"""Processes that share the subscriptions."""
END_SECONDS: Final = 120.0
"""When nothing is done to them any more, all have so long to come to the end."""
CALM_SECONDS: Final = 3.0
"""Before that they go on undisturbed for so long: every run has events."""
REPORT_SECONDS: Final = 10.0


@dataclass
class Outcome:
    """What was done, and what was found."""

    seed: int
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    """What was really done, by kind and target."""
    starts: int = 0
    """Of clients' processes."""
    published: int = 0
    """Events with a receipt."""
    attaches: int = 0
    """How often a subscription was begun or resumed by a process."""
    verdict: Verdict = field(default_factory=Verdict)
    failure: str = ""
    """Why the run did not come to its end."""
    elapsed_s: float = 0

    @property
    def is_right(self) -> bool:
        """Whether every promise was kept."""
        return not self.failure and self.verdict.is_right

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        verdict = {**asdict(self.verdict), "findings": dict(self.verdict.findings)}
        counts = {"faults": dict(self.faults), "verdict": verdict, "elapsed_s": round(self.elapsed_s, 1)}
        return {**asdict(self), **counts, "right": self.is_right}


class Worker:
    """A client's process behind a striker of its own."""

    def __init__(self, name: str, fields: Mapping[str, Any], striker: Striker, directory: Path) -> None:
        self.name = name
        self.striker = striker
        self.starts = 0
        self.lock = asyncio.Lock()
        """One thing at a time is done to it."""
        self._fields = fields
        self._directory = directory
        self._process: Process | None = None

    async def start(self) -> None:
        """Starts it, or starts it again."""
        fields = {
            **self._fields,
            "worker": self.name,
            "directory": str(self._directory),
            "url": self.striker.url,
            "start": self.starts,
        }
        self.starts += 1
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(WORKER),
                json.dumps(fields),
                env=clean_environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    @property
    def runs(self) -> bool:
        """Whether it lives."""
        return self._process is not None and self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal, if it lives."""
        if self.runs:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()

    async def end(self, heads: Mapping[str, int]) -> int:
        """Tells it to come to its end; waits for that, and returns its exit status."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(heads).encode() + b"\n")
        return await self._process.wait()


class Run:
    """Does it all, and judges."""

    def __init__(self, directory: Path, seconds: float, seed: int, say: Callable[[str], None]) -> None:
        self.outcome = Outcome(seed, seconds)
        self._directory = directory
        self._seconds = seconds
        self._seed = seed
        self._say = say
        sections: dict[str, Any] = {"phb": {"pubends": PUBENDS}, "limits": {"heartbeat": HEARTBEAT_SECONDS}}
        self._broker = BrokerProcess(directory / "broker", **sections)
        self._broker.patience = END_SECONDS
        self._broker_lock = asyncio.Lock()
        self._publishers: list[Worker] = []
        self._consumers: list[Worker] = []

    async def run(self) -> Outcome:
        """All of it."""
        began = monotonic()
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._broker)
            control = await stack.enter_async_context(gapless.connect(self._broker.url, client_id="control"))
            await self._until_found(control)
            await self._set_up(stack)
            try:
                await self._make_trouble()
                heads, lost, kept = await self._end(control)
            except (AssertionError, OSError, asyncio.TimeoutError, gapless.GaplessError) as error:
                self.outcome.failure = f"{type(error).__name__}: {error}"
                heads, lost, kept = {}, {}, {}
            finally:
                await asyncio.gather(*(worker.kill() for worker in self._workers))
        if not self.outcome.failure:
            history = await asyncio.to_thread(
                gathered, self._directory, self._seed, [worker.name for worker in self._consumers], heads, lost, kept
            )
            self.outcome.published = len(history.published.receipts)
            self.outcome.attaches = sum(len(subscribed.sessions) for subscribed in history.subscribed)
            self.outcome.verdict = await asyncio.to_thread(judge, history)
        self.outcome.starts = sum(worker.starts for worker in self._workers)
        self.outcome.elapsed_s = monotonic() - began
        return self.outcome

    @property
    def _workers(self) -> list[Worker]:
        return self._publishers + self._consumers

    # What happens.

    async def _until_found(self, control: gapless.Connection) -> None:
        """Until the broker knows all its pubends: a subscription is to begin on each of them at once."""
        count = sum(entry.get("count", 1) for entry in PUBENDS)
        for _ in range(100):
            if len((await control.heads()).ticks) == count:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"the broker does not know its {count} pubends")

    async def _set_up(self, stack: contextlib.AsyncExitStack) -> None:
        plans = [plan.fields() for plan in subscriptions(self._seed)]
        shares = {f"consumer-{number}": plans[number::CONSUMERS] for number in range(CONSUMERS)}
        for name, share in shares.items():
            self._consumers.append(await self._worker(stack, name, {"plans": share}))
        for source in SOURCES:
            self._publishers.append(await self._worker(stack, source.name, {"source": asdict(source)}))
        for worker in self._workers:
            await worker.start()

    async def _worker(self, stack: contextlib.AsyncExitStack, name: str, fields: Mapping[str, Any]) -> Worker:
        target = self._broker.url.partition("://")[2]
        striker = await stack.enter_async_context(Striker(target, Random(f"{self._seed}/proxy/{name}")))
        return Worker(name, {**fields, "seed": self._seed}, striker, self._directory)

    async def _make_trouble(self) -> None:
        """Does what is planned, each thing at its time whether the one before is over or not."""
        faults = schedule(self._seed, self._seconds, [worker.name for worker in self._workers])
        workers = {worker.name: worker for worker in self._workers}
        loop = asyncio.get_running_loop()
        began, reported = loop.time(), 0.0
        tasks: list[asyncio.Task[None]] = []
        for fault in [*faults, Fault(self._seconds, "", "", 0)]:
            while (left := began + fault.at - loop.time()) > 0:
                await asyncio.sleep(min(left, 1))
                self._check(tasks)
                if loop.time() - began - reported > REPORT_SECONDS:
                    reported = loop.time() - began
                    self._say(f"{reported:6.0f} s: {self._done()}")
            if fault.kind:
                doing = (
                    self._do_to_broker(fault) if fault.target == BROKER else self._do_to(fault, workers[fault.target])
                )
                tasks.append(asyncio.create_task(doing))
        for task in tasks:
            await task
        for worker in self._workers:
            worker.striker.heal()
        await asyncio.sleep(CALM_SECONDS)
        self._check(tasks)

    async def _do_to_broker(self, fault: Fault) -> None:
        async with self._broker_lock:
            self.outcome.faults[f"{fault.kind} broker"] += 1
            if fault.kind == "pause":
                os.kill(self._broker.pid, signal.SIGSTOP)
                await asyncio.sleep(fault.seconds)
                os.kill(self._broker.pid, signal.SIGCONT)
                return
            if fault.kind == "kill":
                await self._broker.kill()
            else:
                status = await self._broker.stop()
                assert status == 0, f"the broker ended with status {status} when it was told to stop"
            await asyncio.sleep(fault.seconds)
            await self._broker.start()

    async def _do_to(self, fault: Fault, worker: Worker) -> None:
        if fault.kind not in ("kill", "stop", "pause"):
            worker.striker.strike(fault.kind, fault.seconds)
            return
        async with worker.lock:
            self.outcome.faults[f"{fault.kind} client"] += 1
            if fault.kind == "pause":
                worker.signal(signal.SIGSTOP)
                await asyncio.sleep(fault.seconds)
                worker.signal(signal.SIGCONT)
                return
            await worker.kill()
            await asyncio.sleep(fault.seconds)
            await worker.start()

    def _check(self, tasks: list[asyncio.Task[None]]) -> None:
        """Nobody may end whom nobody ended, and what is done must succeed."""
        for task in tasks:
            if task.done():
                task.result()
        for worker in self._workers:
            if not worker.runs and not worker.lock.locked():
                raise AssertionError(f"{worker.name} has ended by itself: see {worker.name}.log")
        if not self._broker.runs and not self._broker_lock.locked():
            raise AssertionError("the broker has ended by itself: see broker/broker.log")

    def _done(self) -> str:
        """What was done so far, for people."""
        strikes = sum((worker.striker.done for worker in self._workers), Counter())
        counts = {**self.outcome.faults, **strikes}
        return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))

    # How it ends.

    async def _end(self, control: gapless.Connection) -> tuple[dict[str, int], dict[str, int], dict[str, list[Item]]]:
        """Lets all come to their end. Returns what that is, what was released, and what is kept."""
        for worker in self._workers:
            self.outcome.faults.update(worker.striker.done)
        self._say(f"nothing is done any more; {len(self._publishers)} publishers come to their end")
        await self._ended(self._publishers, {})
        heads = await self._final_heads(control)
        self._say("so do the subscribers")
        await self._ended(self._consumers, heads)
        kept = await self._kept(control, heads)
        lost = {row.pubend: row.lost for row in await control.pubends()}
        return heads, lost, kept

    async def _ended(self, workers: list[Worker], heads: Mapping[str, int]) -> None:
        tasks = {asyncio.create_task(worker.end(heads)): worker for worker in workers}
        done, pending = await asyncio.wait(tasks, timeout=END_SECONDS)
        late = [tasks[task].name for task in pending]
        for task in pending:
            task.cancel()
        assert not late, f"{', '.join(late)} have not come to their end in {END_SECONDS:g} s"
        failed = [tasks[task].name for task in done if task.result()]
        assert not failed, f"{', '.join(failed)} have failed: see their logs"

    async def _final_heads(self, control: gapless.Connection) -> dict[str, int]:
        """Behind everything that was published: the newest event of each pubend."""
        return {row.pubend: row.newest for row in await control.pubends()}

    async def _kept(self, control: gapless.Connection, heads: Mapping[str, int]) -> dict[str, list[Item]]:
        """Everything that the pubends have which keep all, as nobody's selector sees it."""
        kept: dict[str, list[Item]] = {pubend: [] for pubend in heads if pubend.startswith("kept")}
        async with control.session() as session, session.subscribe("kept.#", start="earliest") as subscription:
            batches = subscription.batches()
            while any(subscription.token.ticks.get(pubend, 0) < heads[pubend] for pubend in kept):
                batch = await asyncio.wait_for(anext(batches), END_SECONDS)
                for event in batch:
                    publisher, number, _ = event.body.split(b":", 2)
                    headers = (event.priority, event.type, event.correlation_id, event.reply_to)
                    total = checksum(event.topic, event.body, event.properties, headers)
                    kept[event.pubend].append(Item(event.pubend, event.tick, (publisher.decode(), int(number)), total))
        return kept

"""A transform in a network: what kills and rivals lose or double of its output (nothing), and what its token costs.

    feeder – PHB – SHB – application

Flights are published at the PHB all the time, on two pubends. An application at the SHB makes outputs of them, of some
none, of some two; they go to a third pubend, with the position. It is killed with SIGKILL at random moments, and so are
PHB and SHB. Now and then it is paused (SIGSTOP) at a point of its work; a rival takes over, a node may be killed, and
then the paused one wakes (SIGCONT). What everybody is done with is released at once, so that an input that was
acknowledged too early would be missing. At the end the output log is held against what follows from all that was
published: each once, in order, and the stored token stands behind all of it. If not, or if nothing moves any more, the
exit status is 1.

Then the cost: the rate of `session.transform` beside the loop without the token, and Kafka's transactions.

    python -m bench transforms [--kills N] [--pauses N] [--seed N] [--rounds N] [--json]
    python -m bench.transforms --url …                           an application
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import gapless
from bench.network.consumers import Publishing
from bench.network.nodes import Layout, Network, running_network
from bench.peers.transforms import compare
from bench.processes import table
from bench.rivals import ANYWHERE, Rivals, Run, Stops, show
from gapless.cli.connecting import run as run_loop
from gapless.client.subscription import Subscription
from gapless_flights.data import fields_of, made_up_flights
from gapless_flights.processes import Processes
from gapless_flights.proof import prove
from gapless_flights.reporting import Reporter, Stop
from gapless_flights.supervisor import DemoProgress

T = TypeVar("T")

RATE: Final = 250
"""Flights published a second."""
FLIGHTS_PER_KILL: Final = 20 * RATE
FLIGHTS_PER_PAUSE: Final = 80 * RATE
"""More than are published meanwhile, even on a busy machine; at the end the feeders are told to stop."""
PATIENCE: Final = 60.0
"""Seconds for what is left at the end."""

NAME: Final = "connections"
"""Of the transform."""
CLIENT: Final = "transforms"
INPUT: Final = "flights.#"
OUTPUT: Final = "connections"
PROOF: Final = "proof"
END: Final = b"end"
INPUTS: Final = ("feeder-1", "feeder-2")
"""Pubends of the input. The feeder of each has its name."""
LAYOUT: Final = Layout(
    {"phb": ["phb"], "shb": ["shb"]},
    [("phb", "shb")],
    {
        "phb": {
            "release_seconds": 0.1,
            "pubends": [{"name": name, "publishers": [name], "min_retain_seconds": 0.0} for name in (*INPUTS, NAME)],
        }
    },
)

APPLICATION: Final = "application"
POINTS: Final = (
    "before opening",
    "before subscribing",
    "before the first batch",
    "a batch is in hand",
    "published, not sent",
    "sent, not answered",
    "before acknowledging",
    "after acknowledging",
    ANYWHERE,
)
"""Where it is paused."""
IN_A_BATCH: Final = POINTS[3:]
"""There it is paused in its third batch."""


def outputs(flight: str) -> list[str]:
    """What follows from an input."""
    return [f"{flight};{number}" for number in range(_number(flight) % 3)]


def _number(flight: str) -> int:
    return int(fields_of(flight)["flight"])


# ------------------------------------------------------------------------------------- one application


class Application:
    """One process. It ends when it is not the owner."""

    def __init__(self, options: argparse.Namespace, stop: Stop) -> None:
        self._url = options.url
        self._stop = stop
        self._reporter = Reporter()
        self._stops = Stops(self._reporter, options.pause_at, 3 if options.pause_at in IN_A_BATCH else 1)
        self._highest = 0

    async def run(self) -> None:
        """Works until it is told to stop, or another process has its name."""
        connecting = gapless.connect(self._url, client_id=CLIENT, wait=True)
        async with connecting as connection, connection.session() as session:
            ended = ""
            try:
                self._stops.reach(POINTS[0])
                await self._work(session)
            except gapless.PublisherFencedError as error:
                ended = type(error).__name__
            except gapless.PublishUncertainError:
                if not self._stop:
                    raise
                # A node is down, so there is no receipt to wait for. The stored position tells with the next start.
        self._reporter.report(ended=ended)

    async def _work(self, session: gapless.Session) -> None:
        transform = session.transform(INPUT, to=OUTPUT, name=NAME, start="earliest", max_events=32)
        async with transform as work:
            self._stop.then(work.drain)
            self._stops.reach(POINTS[2])
            async for batch in work:
                self._stops.reach(POINTS[3])
                flights = [event.body.decode() for event in batch]
                await batch.publish(gapless.Message(body.encode()) for flight in flights for body in outputs(flight))
                self._highest = max(self._highest, *map(_number, flights))
                self._stops.reach(POINTS[4])
                self._stops.reach(ANYWHERE)
                await asyncio.sleep(0.001)
                self._stops.reach(POINTS[5])

    def stop_within(self) -> None:
        """Stops at points of the transform's own, too, and reports what it acknowledges."""
        attached, acknowledge = Subscription.attached, Subscription.acknowledge_ticks

        async def attached_later(subscription: Subscription[Any, Any]) -> None:
            self._stops.reach(POINTS[1])
            await attached(subscription)

        def acknowledge_later(subscription: Subscription[Any, Any], ticks: Mapping[str, int]) -> None:
            self._stops.reach(POINTS[6])
            acknowledge(subscription, ticks)
            self._stops.reach(POINTS[7])
            self._reporter.report(consumed=self._highest, position=dict(ticks), committed=True)

        Subscription.attached = attached_later  # type: ignore[assignment, method-assign]
        Subscription.acknowledge_ticks = acknowledge_later  # type: ignore[assignment, method-assign]


async def _main(options: argparse.Namespace) -> None:
    application = Application(options, Stop())
    application.stop_within()
    await application.run()


def main() -> None:
    """Reads the arguments and works."""
    parser = argparse.ArgumentParser(description="Makes outputs of flights.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--pause-at", choices=("", *POINTS), required=True)
    run_loop(_main(parser.parse_args()))


# ----------------------------------------------------------------------------- all that are killed


class TransformsRun(Run):
    """A transform in a network."""

    def __init__(self, kills: int, pauses: int, seed: int, directory: Path) -> None:
        super().__init__(kills, pauses, POINTS, seed)
        self._directory = directory
        self._flights = made_up_flights(kills * FLIGHTS_PER_KILL + (1 + pauses) * FLIGHTS_PER_PAUSE, seed)
        self._covered = False

    async def run(self) -> None:
        """All of it. Raises WorkerFailedError when an application fails by itself."""
        async with (
            running_network(LAYOUT, self._directory / "network", with_proxies=False) as network,
            Processes(self._directory / "applications") as processes,
        ):
            self.stalled = not await processes.watch(self._script(network, processes))

    def figures(self) -> dict[str, Any]:
        """What was done, and what is in the output log."""
        covers = {"token_covers_the_input": {"holds": self._covered}}
        figures = super().figures()
        return {**figures, "bars": figures["bars"] | covers}

    async def _script(self, network: Network, processes: Processes) -> bool:
        """From the first flight to the proof. Returns False when nothing moves any more; then nothing is proved."""
        phb, shb = (network.nodes[name].url for name in ("phb", "shb"))
        await _keep(shb, CLIENT, INPUT, NAME)
        await _keep(shb, PROOF, OUTPUT, PROOF)
        feeders = {
            name: Publishing(phb, name, self._flights[place :: len(INPUTS)], RATE / len(INPUTS), {})
            for place, name in enumerate(INPUTS)
        }
        feeding = asyncio.ensure_future(asyncio.gather(*(feeder.run() for feeder in feeders.values())))
        progress = DemoProgress(())
        rivals = Rivals(APPLICATION, processes, progress, lambda _, pause_at: _command(shb, pause_at), ())
        self.rivals = [rivals]
        if not await self._strike(network, processes, rivals, progress):
            return False
        if not await progress.until(lambda: bool(progress.positions.get(APPLICATION))):
            return False
        for feeder in feeders.values():
            feeder.stopped = True
        await _within(PATIENCE, feeding)
        ends = await _ends(phb)
        if not await progress.until(lambda: _covers(progress.positions[APPLICATION], ends)):
            return False
        await processes.stop(rivals.owner)
        token, found = await _within(PATIENCE, _output_log(shb))
        self._covered = _covers(token.ticks, ends)
        self.published = sum(feeder.published for feeder in feeders.values())
        self._prove({name: feeder.flights[: feeder.published] for name, feeder in feeders.items()}, found)
        return True

    async def _strike(self, network: Network, processes: Processes, rivals: Rivals, progress: DemoProgress) -> bool:
        """All kills and pauses."""
        turn, nodes = self.draw([APPLICATION, *network.nodes]), self.draw([*network.nodes])

        async def kill() -> None:
            victim = next(turn)
            if victim != APPLICATION:
                await network.nodes[victim].kill()
            elif not await processes.kill(rivals.owner):
                return
            self.killed[victim] += 1

        async def meanwhile() -> None:
            if self.random.random() < 0.5:
                victim = next(nodes)
                await network.nodes[victim].kill()
                self.killed[f"{victim}, while one is paused"] += 1

        return await self.strike(progress, kill, lambda point: rivals.pause(point, meanwhile))

    def _prove(self, published: Mapping[str, Sequence[str]], found: Sequence[str]) -> None:
        """Of each pubend of the input all that follows from it, in its order, once; and nothing else."""
        wanted = {
            pubend: [each for flight in flights for each in outputs(flight)] for pubend, flights in published.items()
        }
        foreign = set(found).difference(*wanted.values())
        for pubend, expected in wanted.items():
            of_this = set(expected) | foreign
            self.proofs.append(prove(pubend, "", expected, [output for output in found if output in of_this]))


def _command(url: str, pause_at: str) -> list[str]:
    return [sys.executable, "-m", "bench.transforms", f"--url={url}", f"--pause-at={pause_at}"]


def _covers(position: Mapping[str, int], ends: Mapping[str, int]) -> bool:
    return all(position.get(pubend, 0) >= end for pubend, end in ends.items())


async def _ends(phb: str) -> dict[str, int]:
    """The newest event of each pubend of the input."""
    async with gapless.connect(phb, wait=True) as connection:
        newest = {info.pubend: info.newest for info in await connection.pubends()}
    ends = {pubend: tick for pubend, tick in newest.items() if pubend.partition("@")[0] in INPUTS}
    assert len(ends) == len(INPUTS)
    return ends


async def _keep(shb: str, client_id: str, topic: str, name: str) -> None:
    """Makes a subscription, for which everything is kept from now on."""
    async with (
        gapless.connect(shb, client_id=client_id, wait=True) as connection,
        connection.session() as session,
        session.subscribe(topic, name=name, start="earliest"),
    ):
        pass


async def _within(seconds: float, work: Awaitable[T]) -> T:
    """What it returns. Raises TimeoutError if that takes longer."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=seconds)
    if not done:
        task.cancel()
        raise TimeoutError
    return task.result()


async def _output_log(shb: str) -> tuple[gapless.CheckpointToken, list[str]]:
    """The position that is stored, and all outputs. Nobody can publish any under this name any more."""
    found: list[str] = []
    async with gapless.connect(shb, client_id=PROOF, wait=True) as connection, connection.session() as session:
        publisher = session.publisher(OUTPUT, name=NAME)
        stored = await publisher.recover()
        assert stored.token is not None
        await publisher.send(END)
        async with session.subscribe(OUTPUT, name=PROOF) as subscription:
            async for event in subscription:
                if event.body == END:
                    break
                found.append(event.body.decode())
    assert len(found) == stored.sequence
    return stored.token, found


# --------------------------------------------------------------------------------------- what came of it


def run(*, json: bool, kills: int, pauses: int, seed: int | None, rounds: int) -> dict[str, Any]:
    """Both parts, one after the other."""
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    with TemporaryDirectory(prefix="gapless-transforms-") as directory:
        killing = TransformsRun(kills, pauses, seed, Path(directory))
        run_loop(killing.run())
    figures = {**killing.figures(), "seed": seed}
    rates = compare(rounds) if rounds else {}
    if not json:
        show(figures, POINTS, "the output log, by pubend of the input")
        if rates:
            table("consume, transform, publish, the position with the output", rates)
    return {**figures, **rates}


if __name__ == "__main__":
    main()

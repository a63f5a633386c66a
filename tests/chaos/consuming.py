"""A process that consumes some of the subscriptions, each in its own way, and writes down what it was handed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import gapless
from chaos.effects import Effects
from chaos.journal import Journal
from chaos.plan import Plan, checksum

TICKS_ASKED = 3
"""So many heads in a row must say that nothing is left before a reader of ranges believes that it is done."""
TOKENS_KEPT = 30


class Consuming:
    """Consumes subscriptions with one connection each, as long as it takes."""

    def __init__(
        self, plans: Iterable[Plan], url: str, directory: Path, journal: Journal, start: int, random: Random
    ) -> None:
        """`start`: how often this process was started before."""
        self._plans = list(plans)
        self._url = url
        self._directory = directory
        self._journal = journal
        self._random = random
        self._attaches = count(start * 1_000_000)
        """Numbers for what is handed out in one go: between an attach and its end positions only rise."""
        self._heads: Mapping[str, int] | None = None
        """What everything is to be consumed up to; None: go on."""

    def end(self, heads: Mapping[str, int]) -> None:
        """Consumes until everything up to there is consumed."""
        self._heads = heads

    async def run(self) -> None:
        """Until everything is consumed."""
        ways = {
            "sqlite": self._sqlite,
            "token": self._acknowledging,
            "auto": self._acknowledging,
            "fleeting": self._fleeting,
            "brief": self._brief,
            "ranges": self._ranges,
        }
        await asyncio.gather(*(self._alone(ways[plan.kind], plan) for plan in self._plans))

    async def _alone(self, way: Any, plan: Plan) -> None:
        """One subscription, with a connection of its own, again and again."""
        probes = Probes(self._journal, plan, self._random)
        complete = False
        while not complete:
            try:
                async with gapless.connect(self._url, client_id=f"of-{plan.kind}", wait=True) as connection:
                    probing = asyncio.create_task(probes.run(connection))
                    try:
                        while not (complete := await way(connection, plan, probes)):
                            await self._stay_away(plan)
                    finally:
                        probing.cancel()
                        await asyncio.wait([probing])
            except gapless.GaplessError as error:
                self._journal.note("error", what=plan.name, error=repr(error))
                await asyncio.sleep(1)

    async def _stay_away(self, plan: Plan) -> None:
        """For as long as somebody who comes and goes does, or until everything is to be consumed."""
        for _ in range(round(4 * plan.away * self._random.uniform(0.2, 1.2)) if plan.stay else 0):
            if self._heads is None:
                await asyncio.sleep(0.25)

    # The ways. Each returns whether everything is consumed.

    async def _sqlite(self, connection: gapless.Connection, plan: Plan, probes: Probes) -> bool:
        """Token and effects in one transaction; acknowledged behind it, now and then."""
        with closing(Effects(self._directory / f"{plan.name}.sqlite")) as effects:
            stored = effects.token()
            start = gapless.CheckpointToken.parse(stored) if stored else plan.start
            async with self._subscribed(connection, plan, start, connection.session()) as (attach, subscription):
                if stored is None:
                    effects.store((), str(subscription.token), is_start=True)
                elif _fell_back(start, subscription.token):
                    self._journal.note(
                        "error", what=plan.name, error=f"asked for {start!r}, is at {subscription.token!r}"
                    )
                async for rows, token in self._pieces(plan, attach, subscription):
                    effects.store(rows, str(token))
                    probes.note(token)
                    if self._random.random() < 0.3:
                        await subscription.acknowledge(token)
                    await asyncio.sleep(plan.pause if self._heads is None else 0)
                await subscription.acknowledge(subscription.token)
                effects.store((), str(subscription.token))
                return self._is_behind(plan, subscription.token.ticks)

    async def _acknowledging(self, connection: gapless.Connection, plan: Plan, probes: Probes) -> bool:
        """The broker keeps the position: who comes back is handed again what was not acknowledged."""
        mode = gapless.AckMode.AUTO if plan.kind == "auto" else gapless.AckMode.TOKEN
        async with self._subscribed(connection, plan, plan.start, connection.session(mode)) as (attach, subscription):
            async for rows, token in self._pieces(plan, attach, subscription):
                self._note_rows(plan, attach, rows)
                probes.note(token)
                await asyncio.sleep(plan.pause if self._heads is None else 0)
                if plan.kind == "token" and self._random.random() < 0.5:
                    self._journal.note("acked", attach=attach, ticks=dict(token.ticks))
                    await subscription.acknowledge(token)
            token = subscription.token
            self._journal.note("acked", attach=attach, ticks=dict(token.ticks))
            self._journal.note("left", attach=attach, ticks=dict(token.ticks))
            await subscription.acknowledge(token)
            return self._is_behind(plan, token.ticks)

    async def _fleeting(self, connection: gapless.Connection, plan: Plan, probes: Probes) -> bool:
        """Not durable."""
        async with self._subscribed(connection, plan, _start_of(plan, probes), connection.session()) as (
            attach,
            subscription,
        ):
            async for rows, token in self._pieces(plan, attach, subscription):
                self._note_rows(plan, attach, rows)
                probes.note(token)
            token = subscription.token
            self._journal.note("left", attach=attach, ticks=dict(token.ticks))
            return self._is_behind(plan, token.ticks)

    async def _brief(self, connection: gapless.Connection, plan: Plan, probes: Probes) -> bool:
        """Created anywhere, consumed for a while, removed."""
        name = f"{plan.name}-{self._random.getrandbits(48):x}"
        async with self._subscribed(connection, plan, _start_of(plan, probes), connection.session(), name) as (
            attach,
            subscription,
        ):
            async for rows, token in self._pieces(plan, attach, subscription, stay=plan.stay or 5):
                self._note_rows(plan, attach, rows)
                probes.note(token, is_foreign=True)
                await subscription.acknowledge(token)
            token = subscription.token
            self._journal.note("left", attach=attach, ticks=dict(token.ticks))
        await connection.unsubscribe(name)
        return self._is_behind(plan, token.ticks)

    async def _ranges(self, connection: gapless.Connection, plan: Plan, probes: Probes) -> bool:
        """Reads by ranges, keeps its position in SQLite, and reads some ranges twice."""
        start: Any = plan.start
        attached = await connection.attach(plan.name, *plan.topics, selector=plan.selector, start=start)
        with closing(Effects(self._directory / f"{plan.name}.sqlite")) as effects:
            stored = effects.token()
            if stored is None:
                effects.store((), str(attached), is_start=True)
            position = gapless.CheckpointToken.parse(stored) if stored else attached
            idle = 0
            async with connection.lease(plan.name, owner=plan.name, in_use="takeover"):
                while idle < TICKS_ASKED:
                    probes.note(position)
                    heads = await connection.heads(plan.name, after=position, wait=1)
                    idle = idle + 1 if heads == position and self._heads is not None else 0
                    if heads == position:
                        continue
                    end = await connection.bound(plan.name, position, max_events=plan.batch)
                    rows: list[tuple[Any, ...]] = []
                    attach = next(self._attaches)
                    for pubend, tick in end.ticks.items():
                        begin = position.ticks.get(pubend, 0)
                        read = [
                            item
                            async for item in connection.read_range(plan.name, pubend, begin, tick, on_gap="deliver")
                        ]
                        if self._random.random() < 0.2:
                            await self._again(connection, plan, pubend, begin, tick, read)
                        rows += _rows(attach, read)
                    effects.store(rows, str(end))
                    await connection.ack(plan.name, end)
                    position = end
            everything = gapless.CheckpointToken(position.network, self._heads or {})
            effects.store((), str(position.merge(everything)))
        return True

    async def _again(
        self, connection: gapless.Connection, plan: Plan, pubend: str, begin: int, end: int, read: list[Any]
    ) -> None:
        """A range that is read again holds the same, or is gone meanwhile."""
        again = [item async for item in connection.read_range(plan.name, pubend, begin, end, on_gap="deliver")]
        gaps = any(isinstance(item, gapless.Gap) for item in again)
        if not gaps and again != read:
            self._journal.note("error", what=plan.name, error=f"({begin}, {end}] of {pubend} has changed")

    # Pieces of them.

    @asynccontextmanager
    async def _subscribed(
        self, connection: gapless.Connection, plan: Plan, start: Any, session: gapless.Session, name: str | None = None
    ) -> AsyncIterator[tuple[int, Any]]:
        """A subscription; where it begins is written down."""
        subscribing = session.subscribe(
            *plan.topics,
            name=None if plan.kind == "fleeting" else name or plan.name,
            selector=plan.selector,
            start=_when(start),
            on_gap="raise" if plan.raises else "deliver",
            in_use="takeover" if self._random.random() < 0.7 else "wait",
        )
        attach = next(self._attaches)
        async with session, subscribing as subscription:
            self._journal.note(
                "attached",
                name=name or plan.name,
                plan=plan.name,
                attach=attach,
                ticks=dict(subscription.token.ticks),
            )
            yield attach, subscription

    async def _pieces(
        self, plan: Plan, attach: int, subscription: Any, stay: float | None = None
    ) -> AsyncIterator[tuple[list[tuple[Any, ...]], gapless.CheckpointToken]]:
        """What it hands out, and its token behind that, until it is time to go."""
        clock = asyncio.get_running_loop().time
        stay = stay or (plan.stay and self._random.uniform(0.5, 2) * plan.stay)
        until = clock() + stay if stay else float("inf")
        batches = subscription.batches(plan.batch)
        task: asyncio.Future[Any] | None = None
        try:
            while clock() < until or (self._heads is not None and not stay):
                task = task or asyncio.ensure_future(anext(batches))
                await asyncio.wait([task], timeout=0.25)
                if not task.done():
                    if self._heads is not None and self._is_behind(plan, subscription.token.ticks):
                        return
                    continue
                try:
                    piece = task.result()
                except gapless.GapError as error:
                    piece = error.gap
                task = None
                if isinstance(piece, gapless.Gap):
                    yield list(_rows(attach, [piece])), subscription.token
                else:
                    yield list(_rows(attach, piece)), piece.token
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    def _note_rows(self, plan: Plan, attach: int, rows: list[tuple[Any, ...]]) -> None:
        self._journal.note("got", attach=attach, rows=rows)

    def _is_behind(self, plan: Plan, ticks: Mapping[str, int]) -> bool:
        """Whether everything that is to be consumed is."""
        if self._heads is None:
            return False
        wanted = {pubend: tick for pubend, tick in self._heads.items() if pubend.startswith(plan.families)}
        return all(ticks.get(pubend, 0) >= tick for pubend, tick in wanted.items())


class Probes:
    """Asks about positions that were handed out: none may ever be refused, and none of them lost."""

    def __init__(self, journal: Journal, plan: Plan, random: Random) -> None:
        self._journal = journal
        self._plan = plan
        self._random = random
        self._tokens: list[gapless.CheckpointToken] = []
        """Some that were handed out, the latest last."""

    def note(self, token: gapless.CheckpointToken, *, is_foreign: bool = False) -> None:
        """A position was handed out. `is_foreign`: of a subscription that will be gone."""
        if is_foreign:
            token = gapless.CheckpointToken(token.network, token.ticks)
        if len(self._tokens) >= TOKENS_KEPT:
            del self._tokens[self._random.randrange(TOKENS_KEPT)]
        self._tokens.append(token)

    def any(self) -> gapless.CheckpointToken | None:
        """One of them, of no subscription."""
        if not self._tokens:
            return None
        token = self._random.choice(self._tokens)
        return gapless.CheckpointToken(token.network, token.ticks)

    async def run(self, connection: gapless.Connection) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 4))
            try:
                await self._ask(connection)
            except gapless.SubscriptionNotFoundError:
                pass  # it is not created yet, or gone
            except gapless.InvalidTokenError as error:
                self._journal.note("refused", name=self._plan.name, error=repr(error))
            except gapless.GaplessError as error:
                self._journal.note("error", what=f"asking about {self._plan.name}", error=repr(error))

    async def _ask(self, connection: gapless.Connection) -> None:
        name = self._plan.name
        token = self.any()
        if token is not None:
            await connection.heads(after=token)
        rows = [row for row in await connection.subscriptions() if row.client_id == connection.client_id]
        self._journal.note("listed", rows=len(rows))
        for row in self._random.sample(rows, min(3, len(rows))):
            await connection.heads(after=row.acknowledged)
            if row.name == name:
                await connection.bound(name, row.acknowledged, max_events=10)
                await connection.heads(name, after=row.acknowledged)


def _rows(attach: int, items: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Events and gaps as effects."""
    for item in items:
        if isinstance(item, gapless.Gap):
            yield item.pubend, item.end, None, None, item.start, item.reason, attach
        else:
            publisher, number, _ = item.body.split(b":", 2)
            headers = (item.priority, item.type, item.correlation_id, item.reply_to)
            total = checksum(item.topic, item.body, item.properties, headers)
            yield item.pubend, item.tick, f"{publisher.decode()}:{number.decode()}", total, None, None, attach


def _start_of(plan: Plan, probes: Probes) -> Any:
    if plan.start == "token":
        return probes.any() or "earliest"
    return plan.start


def _when(start: Any) -> Any:
    if start == "time":
        return datetime.now(timezone.utc) - timedelta(seconds=5)
    return start


def _fell_back(asked: Any, token: gapless.CheckpointToken) -> bool:
    """Whether a subscription stands before where it was asked to; silence may have moved it on already."""
    return any(token.ticks.get(pubend, 0) < tick for pubend, tick in asked.ticks.items())

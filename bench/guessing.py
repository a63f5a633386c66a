"""Somebody guesses passwords, and what that costs the broker, what others notice of it, and what he learns by it.

Three measurements. Of a real broker: 10,000 wrong passwords, 50 at a time, each on a link of its own, with the delays
turned off: how much processor time that takes, and how long deliveries to somebody else stop meanwhile, beside the same
time without. Of the authenticator alone: whether the time of its answers tells a user who is there from one who is not.
Of the handshake alone: a million frames of garbage, whether one of them opens a session, and what memory that takes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator
from itertools import pairwise
from math import erf, sqrt
from pathlib import Path
from random import Random
from typing import Any, Final

import gapless
from bench.processes import Broker, running_broker, table
from gapless.cli.connecting import run as run_loop
from gapless.core.ports import AuthContext, Authenticator
from gapless.core.principal_limits import NO_LIMITS
from gapless.core.principals import NO_CERTIFICATE, PeerInfo, Refusal
from gapless.core.server import BrokerIdentity, SessionLimits, Sessions
from gapless.core.server.audit import Audit
from gapless.core.server.authority import Authority
from gapless.core.server.budgets import Budgets
from gapless.core.server.reception import Reception
from gapless.core.server.users import UserRow
from gapless.core.wire.codec import decode_server, encode
from gapless.core.wire.framing import FrameDecoder, encode_frame
from gapless.core.wire.messages import PROTOCOL, Challenge, Hello, HelloRefused, Proof
from gapless.plugins import load
from gapless.security.allow_all import AllowAll
from gapless.security.users import new_verifier, write_users

GUESSES: Final = 10_000
AT_ONCE: Final = 50
USER: Final = "ada"
EVENTS_EACH: Final = 0.005
"""So many seconds pass between two events to somebody else."""
TRIES: Final = 10_000
GARBAGE: Final = 1_000_000
CPU_MOST: Final = 4.0
STOP_MOST: Final = 0.05
P_LEAST: Final = 0.01


# -------------------------------------------------------------------------------------- a real broker


@contextlib.contextmanager
def _users() -> Any:
    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
        path = Path(folder) / "users.jsonl"
        write_users(path, {USER: UserRow(new_verifier(secrets.token_urlsafe()), (), 0)})
        yield path


class _Stranger:
    """A link of somebody who has no client, but knows the protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder(1 << 16)
        self._come: list[bytes] = []

    async def ask(self, payload: bytes) -> object:
        """Says something. Returns the answer."""
        self._writer.write(encode_frame(payload))
        while not self._come:
            data = await self._reader.read(4096)
            if not data:
                raise ConnectionError("the broker has hung up without an answer")
            self._come += self._decoder.feed(data)
        return decode_server(self._come.pop(0))

    def close(self) -> None:
        """Leaves."""
        self._writer.transport.abort()


def _first(number: int) -> bytes:
    nonce = base64.b64encode(number.to_bytes(12, "big")).decode()
    message = f"n,,n={USER},r={nonce}".encode()
    return encode(0, Hello(PROTOCOL, "", "guesser", f"i{number}", message, "scram"))


async def _guess(host: str, port: int, number: int) -> None:
    stranger = _Stranger(*await asyncio.open_connection(host, port))
    try:
        challenge = await stranger.ask(_first(number))
        assert isinstance(challenge, Challenge), challenge
        nonce = challenge.data.split(b",")[0]
        proof = base64.b64encode(os.urandom(32))
        refused = await stranger.ask(encode(0, Proof(b"c=biws," + nonce + b",p=" + proof)))
        assert isinstance(refused, HelloRefused), refused
    finally:
        stranger.close()


async def guess(url: str, guesses: int) -> None:
    """All guesses, so many at once."""
    host, _, port = url.rpartition("//")[2].rpartition(":")
    waiting = iter(range(guesses))

    async def some() -> None:
        for number in waiting:
            await _guess(host, int(port), number)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def _guess_elsewhere(broker: Broker, guesses: int) -> float:
    """The same in a process of its own: what is measured here is the broker. Returns for how long it took."""
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.guessing", broker.url, str(guesses))
    if await process.wait():
        raise RuntimeError("who guesses has failed")
    return time.monotonic() - begun


class _Deliveries:
    """Somebody else's events: when each came."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def longest(self, since: float) -> float:
        """The longest time without one, in seconds."""
        at = [since, *(when for when in self.at if when >= since)]
        return max(later - earlier for earlier, later in pairwise(at))


@contextlib.asynccontextmanager
async def _somebody_else(broker: Broker) -> AsyncIterator[_Deliveries]:
    found = _Deliveries()

    async def publish(session: gapless.Session) -> None:
        publisher = session.publisher("bench.guessing")
        while True:
            await publisher.send(b"x")
            await asyncio.sleep(EVENTS_EACH)

    async with (
        gapless.connect(broker.url, client_id="other") as connection,
        connection.session() as session,
        session.subscribe("bench.guessing", name=None, start="latest") as subscription,
    ):

        async def read() -> None:
            async for _ in subscription:
                found.at.append(time.monotonic())

        tasks = [asyncio.ensure_future(read()), asyncio.ensure_future(publish(session))]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _measure(broker: Broker, guesses: int) -> dict[str, float]:
    async with _somebody_else(broker) as others:
        await asyncio.sleep(1)
        quiet = time.monotonic()
        before = broker.cpu_seconds()
        await asyncio.sleep(5)
        usual = (broker.cpu_seconds() - before) / 5
        longest_quiet = others.longest(quiet)
        begun, before = time.monotonic(), broker.cpu_seconds()
        broker.forget_memory()
        took = await _guess_elsewhere(broker, guesses)
        cpu = broker.cpu_seconds() - before - usual * took
        longest = others.longest(begun)
    return {
        "guesses": guesses,
        "guessing_s": took,
        "cpu_s": cpu,
        "cpu_us_per_guess": 1e6 * cpu / guesses,
        "longest_stop_ms": 1e3 * longest,
        "longest_stop_without_ms": 1e3 * longest_quiet,
        "memory_mib": broker.memory_bytes() / (1 << 20),
    }


# ------------------------------------------------------------------------------------ the cores alone


def _authenticator(rows: dict[str, bytes]) -> Authenticator:
    context = AuthContext(rows, b"s" * 32, wall=lambda: 0, now=time.monotonic_ns, end=lambda _name, _reason: None)
    made: Authenticator = load("auth", "scram")(options={"delays": False}, context=context)
    return made


def _peer() -> PeerInfo:
    return PeerInfo("127.0.0.1:1", NO_CERTIFICATE, secure=False, is_local=False, binding=b"")


def told_apart(tries: int) -> float:
    """How probable such a difference of times is if there is none: a user who is there, and one who is not.

    Both take turns; what other processes do takes the longest tenth of the times with it.
    """
    authenticator = _authenticator({USER: UserRow(new_verifier("open-sesame"), (), 0).stored})
    times: dict[str, list[int]] = {USER: [], "bob": []}
    random = Random(1)  # noqa: S311 - who comes first
    for number in range(tries):
        for user in random.sample([*times], len(times)):
            first = f"n,,n={user},r=nonce{number}".encode()
            begun = time.perf_counter_ns()
            authentication = authenticator.begin("guesser", _peer())
            assert authentication is not None
            challenge = authentication.answer(first)
            assert isinstance(challenge, bytes)
            refused = authentication.answer(b"c=biws," + challenge.split(b",")[0] + b",p=" + b"A" * 43 + b"=")
            times[user].append(time.perf_counter_ns() - begun)
            assert isinstance(refused, Refusal)
    return _rank_sum(*(sorted(each)[: tries * 9 // 10] for each in times.values()))


def _rank_sum(one: list[int], other: list[int]) -> float:
    """The two-sided test of Mann and Whitney, for many values."""
    ranked = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks: list[float] = []
    at = 0
    while at < len(ranked):
        end = at
        while end < len(ranked) and ranked[end][0] == ranked[at][0]:
            end += 1
        ranks += [(at + end + 1) / 2] * (end - at)
        at = end
    total = sum(rank for rank, (_, which) in zip(ranks, ranked, strict=True) if not which)
    n, m = len(one), len(other)
    z = (total - n * (n + m + 1) / 2) / sqrt(n * m * (n + m + 1) / 12)
    return 1 - erf(abs(z) / sqrt(2))


def garbage(frames: int) -> tuple[int, float]:
    """So many frames of a handshake, none of which proves anything. Returns sessions, and MiB that remain."""
    sessions = Sessions(
        BrokerIdentity("n", "net", durable=True, start=1),
        SessionLimits(),
        [Reception([_authenticator({USER: UserRow(new_verifier("open-sesame"), (), 0).stored})], is_local=False)],
        Authority(AllowAll()),
        {},
        Audit(is_wanted=False),
        Budgets(NO_LIMITS),
    )
    random = Random(7)  # noqa: S311 - the same garbage every time
    good = [_first(1), encode(0, Proof(b"c=biws,r=x,p=" + b"A" * 44)), encode(0, Hello(PROTOCOL, "", "c", "i"))]
    now, link, sent = 1, 0, 0
    tracemalloc.start()
    base = 0
    while sent < frames:
        link += 1
        sessions.on_link(link, _peer(), 0, now)
        for _ in range(random.randrange(1, 4)):
            data = bytearray(random.choice(good))
            if random.random() < 0.8:
                for _ in range(random.randrange(1, 4)):
                    data[random.randrange(len(data))] = random.randrange(256)
            if random.random() < 0.1:
                del data[random.randrange(len(data)) :]
            sessions.on_frames(link, [bytes(data)], now, 1)
            sent += 1
        sessions.take_effects()
        sessions.take_links(now)
        sessions.on_link_closed(link)
        sessions.on_deadline(now)
        now += 1_000_000
        if link == frames // 20:
            base = tracemalloc.get_traced_memory()[0]
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return sessions.count, (left - base) / (1 << 20)


def run(*, json: bool) -> dict[str, Any]:
    """All three."""
    with _users() as path:
        auth = f'[[auth]]\nplugin = "scram"\nusers = "{path}"\ndelays = false\n[[auth]]\nplugin = "anonymous"\n'
        with running_broker(auth) as broker:
            found: dict[str, Any] = run_loop(_measure(broker, GUESSES))
    found["p_told_apart"] = told_apart(TRIES)
    if found["p_told_apart"] < P_LEAST:
        found["p_told_apart"] = told_apart(TRIES)  # one in a hundred is chance
    found["garbage_frames"] = GARBAGE
    found["garbage_sessions"], found["garbage_memory_mib"] = garbage(GARBAGE)
    bars = {
        "cpu_s": found["cpu_s"] <= CPU_MOST,
        "longest_stop_ms": found["longest_stop_ms"] <= 1e3 * STOP_MOST,
        "p_told_apart": found["p_told_apart"] >= P_LEAST,
        "garbage_sessions": not found["garbage_sessions"],
        "garbage_memory_mib": found["garbage_memory_mib"] <= 1,
    }
    if not json:
        table("guessing passwords", found)
        missed = [name for name, holds in bars.items() if not holds]
        print(f"not as they have to be: {', '.join(missed)}" if missed else "all as they have to be")
    return {**found, "bars": {name: {"holds": holds} for name, holds in bars.items()}}


if __name__ == "__main__":
    asyncio.run(guess(sys.argv[1], int(sys.argv[2])))

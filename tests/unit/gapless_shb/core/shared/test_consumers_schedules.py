"""Consumers that die, lose their links, come back and say everything twice, and a broker that crashes: J5 and J10.

The real core on a disk in memory, and modelled consumers; what happens when is random. Writes become durable in order,
and a crash keeps a prefix of those on their way. Whatever the schedule: nothing is lost, nothing comes again after
Settled, a verdict that took effect is never answered as lost, and what comes again is marked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from gapless.core.ports import ClientSession, SessionEnded
from gapless.core.wire import messages as m
from gapless.core.wire.messages import Holds, Kind, Settle, Take, Verdict
from sim.switches.edits import Change, Edit, Replace, applied
from unit.gapless_shb.core.harness import PUBEND
from unit.gapless_shb.core.subscriptions.test_sharing import SharingRig

EVENTS = 30
WINDOW = 12


@dataclass
class Held:
    """An event that a consumer was given."""

    number: int
    careful: bool
    asked: bool = False
    handed: bool = False


@dataclass(eq=False)
class Modelled:
    """One consumer: a process, through all its links."""

    name: str
    session: ClientSession | None = None
    answer: m.Subscribed | None = None
    read: int = 0
    """So many messages of the session have arrived."""
    holds: dict[int, Held] = field(default_factory=dict)
    pending: dict[int, dict[int, tuple[int, Kind]]] = field(default_factory=dict)
    """Settlements without an answer: tick → delivery number and verdict."""
    number: int = 0
    credit: int = 0


class Schedule:
    """A broker and its consumers, with what the applications have seen."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rig = SharingRig()
        self.consumers = [Modelled(f"i{number}") for number in range(3)]
        self.born = 3
        self.handed: dict[int, int] = {}
        """How often each event was handed out, …"""
        self.taken: dict[int, int] = {}
        """… and how often of that its consumer had taken it before."""
        self.done: dict[int, str] = {}
        """Who was told that its acknowledgement is settled."""
        self.unheard: set[int] = set()
        """What consumers have acknowledged that died before they were answered: it may have taken effect."""
        self.told_lost: dict[int, set[str]] = {}

    # ------------------------------------------------------------------------------- what clients do

    def connect(self, one: Modelled) -> None:
        if one.session is not None:
            return
        session = one.session = self.rig.session(one.name)
        one.read, one.credit = 0, 4
        held = {tick: held.number for tick, held in one.holds.items()}
        holds = (Holds(PUBEND, tuple(sorted(held)), tuple(held[tick] for tick in sorted(held))),) if held else ()
        sharing = {"window": WINDOW, "holds": holds}
        self.rig.ask(session, known=one.answer, credit=4, sharing=sharing)
        for held_one in one.holds.values():
            held_one.asked &= held_one.handed
        for number in sorted(one.pending):
            self.say(one, number)

    @staticmethod
    def is_pending(one: Modelled, tick: int) -> bool:
        return any(tick in verdicts for verdicts in one.pending.values())

    def say(self, one: Modelled, number: int) -> None:
        if one.session is None or one.answer is None:
            return
        verdicts = []
        for kind in (Kind.ACKNOWLEDGE, Kind.RETRY):
            found = sorted((tick, each) for tick, (each, said) in one.pending[number].items() if said is kind)
            if found:
                holds = Holds(PUBEND, tuple(tick for tick, _ in found), tuple(each for _, each in found))
                verdicts.append(Verdict(kind, holds, self.random.choice((0, 0, 300)) if kind is Kind.RETRY else 0))
        self.rig.feed(Settle(one.answer.sid, number, tuple(verdicts)), one.session)

    def arrive(self, one: Modelled) -> None:
        """One more message of the broker arrives."""
        heard = self.rig.heard.get(one.session.number, []) if one.session is not None else []
        if one.read < len(heard):
            one.read += 1
            self.hear(one, heard[one.read - 1])

    def hear(self, one: Modelled, message: Any) -> None:
        if isinstance(message, m.Subscribed):
            one.answer = message
        elif isinstance(message, m.DeliverHeld):
            for at, tick in enumerate(message.columns.ticks()):
                assert tick not in self.done, f"{tick} comes again to {one.name} after Settled"
                if self.handed.get(tick):
                    assert message.careful, f"{tick} comes again, and is not marked"
                attempts = message.attempts[at] if message.attempts else 0
                assert attempts >= self.taken.get(tick, 0), f"{tick} was taken more often than is known"
                one.holds[tick] = Held(message.first + at, message.careful)
                one.credit -= 1
        elif isinstance(message, m.HoldLost):
            for holds in message.holds:
                for tick, number in zip(holds.ticks, holds.numbers, strict=True):
                    if tick in one.holds and one.holds[tick].number == number:
                        del one.holds[tick]
        elif isinstance(message, m.Taken):
            for tick, held in list(one.holds.items()):
                if held.number in message.lost:
                    del one.holds[tick]
                elif held.number == message.first:
                    held.handed = True
                    self.handed[tick] = self.handed.get(tick, 0) + 1
                    self.taken[tick] = self.taken.get(tick, 0) + 1
        elif isinstance(message, m.Settled):
            self.settled(one, message)
        else:
            assert not isinstance(message, m.RequestFailed | m.Detached | m.DeliverHeldGap), message

    def settled(self, one: Modelled, message: m.Settled) -> None:
        verdicts = one.pending.pop(message.number, {})
        assert not message.uncertain
        lost = {tick for holds in message.lost for tick in holds.ticks}
        for tick, (number, kind) in verdicts.items():
            if tick in one.holds and one.holds[tick].number == number:
                del one.holds[tick]
            if kind is Kind.ACKNOWLEDGE and tick in lost:
                self.told_lost.setdefault(tick, set()).add(one.name)
            elif kind is Kind.ACKNOWLEDGE:
                assert self.done.setdefault(tick, one.name) == one.name, f"{tick} was settled for two"

    def work(self, one: Modelled, *, retries: bool = True) -> None:
        """The application takes an event, or says what becomes of one or several."""
        if one.session is None or one.answer is None:
            return
        for tick in sorted(one.holds):
            held = one.holds[tick]
            if not held.handed and not held.asked:
                held.asked = True
                if held.careful:
                    holds = Holds(PUBEND, (tick,), (held.number,))
                    self.rig.feed(Take(one.answer.sid, holds), one.session)
                else:
                    held.handed = True
                    self.handed[tick] = self.handed.get(tick, 0) + 1
                return
        ready = [t for t, held in one.holds.items() if held.handed and not self.is_pending(one, t)]
        if ready:
            chosen = self.random.sample(ready, self.random.randint(1, len(ready)))
            one.number += 1
            retry = retries and self.random.random() < 0.15
            kind = Kind.RETRY if retry else Kind.ACKNOWLEDGE
            one.pending[one.number] = {tick: (one.holds[tick].number, kind) for tick in chosen}
            self.say(one, one.number)
        if one.credit <= 2:
            one.credit += 3
            self.rig.feed(m.Credit(one.answer.sid, 3, 0), one.session)

    # ------------------------------------------------------------------------------- what goes wrong

    def cut(self, one: Modelled) -> None:
        session, one.session = one.session, None
        if session is not None:
            self.rig.feed(SessionEnded(session))

    def die(self, one: Modelled) -> None:
        self.cut(one)
        for verdicts in one.pending.values():
            self.unheard.update(tick for tick, (_, kind) in verdicts.items() if kind is Kind.ACKNOWLEDGE)
        self.consumers.remove(one)
        self.consumers.append(Modelled(f"i{self.born}"))
        self.born += 1

    def leave(self, one: Modelled) -> None:
        """It says goodbye, if it waits for nothing."""
        if one.session is None or one.answer is None or one.pending:
            return
        self.rig.feed(m.Detach(one.answer.sid), one.session)
        self.die(one)

    def crash(self) -> None:
        for one in self.consumers:
            one.session = None
        self.rig.crash(self.random.randrange(len(self.rig.unsynced) + 1))

    # -------------------------------------------------------------------------------------- the run

    def step(self) -> None:
        rig, random = self.rig, self.random
        one, chance = random.choice(self.consumers), random.random()
        if chance < 0.08 and len(rig.log) < EVENTS:
            before = rig.stable
            rig.publish()
            rig.deliver(rig.knowledge(before, rig.stable, raw=False, reply=False))
        elif chance < 0.30:
            self.arrive(one)
        elif chance < 0.50:
            rig.sync(1)
        elif chance < 0.60:
            rig.answer_holds()
            rig.read()
            rig.answer_wants()
        elif chance < 0.62:
            self.crash()
        elif chance < 0.64:
            self.cut(one)
        elif chance < 0.645:
            self.die(one)
        elif chance < 0.65:
            self.leave(one)
        elif chance < 0.70:
            rig.pause(random.choice((50, 300, 3_000)))
        elif chance < 0.71:
            if self.born > 3 or any(each.answer for each in self.consumers):  # it has begun
                rig.release()
        elif chance < 0.78:
            self.connect(one)
        else:
            self.work(one)

    def rest(self) -> None:
        """Nothing goes wrong any more: everything is settled in the end."""
        rig = self.rig
        for _ in range(400):
            rig.settle_down()
            rig.see()
            rig.deliver(rig.knowledge(rig.stable - 1, rig.stable, raw=True, reply=False))
            for one in self.consumers:
                self.connect(one)
                for _ in range(6):
                    self.arrive(one)
                    self.work(one, retries=False)
            if rig.hosting.streams[PUBEND].positions[1].acked == rig.log[-1][0]:
                break
            rig.pause(400)
        for one in self.consumers:
            self.connect(one)
            for _ in range(99):
                self.arrive(one)


def play(seed: int) -> None:
    """A run. Raises AssertionError if anything is lost, comes again, or is not marked."""
    schedule = Schedule(seed)
    for _ in range(700):
        schedule.step()
    schedule.rest()
    log = [tick for tick, _, _ in schedule.rig.log]

    left = set(log) - schedule.done.keys() - schedule.unheard
    assert not left, f"never settled, or told to be lost by whoever settled it: {left}"


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_each_event_is_settled_once(seed: int) -> None:
    play(seed)


_SHARED = "gapless_shb.core.shared.consumers:SharedSubscription"
_WINDOW = "gapless_shb.core.shared.window:Window"
_CEILING = "gapless_shb.core.shared.settling:Ceiling"
BROKEN: dict[str, Change] = {
    # TS22: a verdict that took effect is judged again, and nobody holds the event any more.
    "repeated verdicts are judged anew": Edit(
        f"{_SHARED}.settle", "self.roster.repeated(member.instance, number)", "None"
    ),
    # TS25: below the frontier no row means settled.
    "a write has only the chunks that its verdicts touched": Edit(
        f"{_WINDOW}.rows", "first in self._dirty or chunk.ticks[-1] > self.written or not chunk.is_stored", "False"
    ),
    # TS17
    "Settled is said before it is durable": Replace(
        f"{_SHARED}._say",
        "self._host.tell(member.channel.session, message)\nself._writes = True\nself.touch()",
    ),
    # TS2
    "events are delivered before it is noted that somebody is there": Edit(
        f"{_CEILING}.room",
        "self.durable - self.number if self.is_open and tick <= self.sent.get(pubend, 0) else 0",
        "AHEAD",
    ),
    # TS3
    "nothing is in doubt after an unclean end": Replace(f"{_WINDOW}.begin_in_doubt", "self.doubted_upto = 0"),
    # TS4
    "Taken is said, and the attempt is not noted": Replace(f"{_WINDOW}.attempt", "return"),
    "what is in doubt when all leave is forgotten": Edit(
        "gapless_shb.core.shared.window:Chunk.row", "self.doubt & open_", "0"
    ),
    # TS28
    "delivery numbers begin anew with each life": Edit(
        f"{_CEILING}.restored", "cls(top, top, top, top,", "cls(0, top, top, top,"
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rule_would_be_seen(broken: str) -> None:
    with applied([BROKEN[broken]]), pytest.raises(AssertionError):
        for seed in range(150):
            play(seed)

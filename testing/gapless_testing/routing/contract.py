"""The contract of routers, watched from outside (protocol: contract).

A `Contract` sees every call into every router of a network and every effect out of one. It knows what the
routers cannot all know: what each pubend really said, what each SHB really wanted at which version, and
what each reported. So it raises `ContractError`, naming the clause, in the very step in which a router
says more than is so.

What it watches: C1 truth, C4 minima, C5 enrol, C9 place, C10 mail, and that rows of holds go through unchanged. What
takes time or a second run (C2, C3, C6, C7, C8) is the business of the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gapless.core.network import facts as routing
from gapless.core.network.facts import BrokerId, Hold
from gapless.core.network.release import Minima
from gapless.core.network.seam import Effect, RouterContext
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.interests import InterestHistory
from gapless_testing.routing.minima import Members
from gapless_testing.routing.placing import Placings
from gapless_testing.routing.truth import PubendTruth

Thing = TypeVar("Thing")


class Contract:
    """An observer of the routing seam of a whole network. Feed it each call, then each effect of the call."""

    def __init__(self) -> None:
        self.truths: dict[PubendId, PubendTruth] = {}
        self.interests: dict[ShbId, InterestHistory] = {}
        self.memberships: dict[PubendId, Members] = {}
        self.enrolments: dict[tuple[PubendId, ShbId], int] = {}
        """How often routers asked for each SHB to be counted."""
        self._placings = Placings()
        self._maps: dict[BrokerId, Mapping[BrokerId, object]] = {}
        """The nodes of the map that each router was given."""
        self._shbs: dict[BrokerId, dict[ShbId, None]] = {}
        self._call = 0
        """The number of the call that is under way."""
        self._frames: dict[BrokerId, int] = {}
        """How many frames each broker's router has got."""
        self._rows: dict[tuple[PubendId, ShbId, int], list[Hold]] = {}
        self._held: dict[tuple[BrokerId, PubendId, int], list[routing.Held]] = {}
        self._homes: dict[ShbId, BrokerId] = {}
        self._posted: dict[tuple[BrokerId, BrokerId, str, bytes], None] = {}
        self.arrived: dict[tuple[BrokerId, BrokerId, str, bytes], None] = {}
        """The mail that has come: from where, to where, for which role, and what it says."""
        self._facts: Mapping[type, Callable[[BrokerId, Any], None]] = {
            RouterContext: self._on_context,
            routing.FrameArrived: self._on_frame,
            routing.Opened: self._on_pubend,
            routing.Know: self._on_know,
            routing.Enrolled: self._on_enrolled,
            routing.Held: self._on_held,
            routing.Submitted: self._on_submitted,
            routing.Interest: self._on_interest,
            routing.Hold: self._on_hold,
            routing.Progress: self._on_progress,
            routing.SubmitOpen: lambda broker, said: self._placings.ask(broker, said.request, said.reply_to),
            routing.Submit: lambda broker, said: self._placings.ask(broker, said.pub, said.reply_to),
            routing.Post: self._on_post,
        }
        self._effects: Mapping[type, Callable[[BrokerId, Any], None]] = {
            routing.Undial: self._check_undial,
            routing.Know: self._check_deliver,
            routing.Seen: self._check_seen,
            routing.Held: self._check_held,
            routing.AskPubend: lambda broker, said: self._check_is_here(Clause.ANSWER, broker, said.want.pubend),
            routing.Enrol: self._check_enrol,
            routing.Hold: self._check_hold,
            routing.Released: self._check_released,
            routing.Submit: lambda broker, said: self._placings.submit(broker, said.pub, said.reply_to),
            routing.SubmitOpen: lambda broker, said: self._placings.submit(broker, said.request, said.reply_to),
            routing.Submitted: self._placings.end,
            routing.Posted: self._check_posted,
        }

    @property
    def effects(self) -> tuple[type, ...]:
        """The kinds of effects that are judged; of others `said` need not be told."""
        return tuple(self._effects)

    # ------------------------------------------------------------------------------ what is to be fed

    def informed(self, broker: BrokerId, now: int, fact: Any) -> None:
        """A router is about to be told something: whatever it is, `RouterContext` and `Wake` too."""
        self._call += 1
        handler = self._facts.get(type(fact))
        if handler is None:
            return
        try:
            handler(broker, fact)
        except ContractError as breach:
            raise breach.at(broker, now) from None

    def said(self, broker: BrokerId, now: int, effect: Effect) -> None:
        """An effect came out of a router. Raises ContractError if it breaks a clause."""
        handler = self._effects.get(type(effect))
        if handler is None:
            return
        try:
            handler(broker, effect)
        except ContractError as breach:
            raise breach.at(broker, now) from None

    def vanished(self, broker: BrokerId) -> None:
        """A broker's router was thrown away; the cores around it live on. Call it before the next one starts."""
        self._placings.forget_router(broker)
        self._frames.pop(broker, None)
        for membership in self.memberships.values():
            if membership.broker == broker:
                membership.forget_router()

    def restarted(self, broker: BrokerId) -> None:
        """A broker's whole process is gone: the router, the cores, and every client's session."""
        self.vanished(broker)
        self._placings.forget_broker(broker)

    def lost_volume(self, broker: BrokerId) -> None:
        """A broker begins on an empty volume: what its former process placed may still be on its way, and come last."""
        self._placings.forget_order(broker)

    def given_up(self, pubend: PubendId, lo: Tick, hi: Tick) -> None:
        """An operator has given up what a pubend logged in (lo, hi], for it cannot be read: it counts as never sent."""
        self._placings.forget_logged(pubend, lo, hi)

    def check_quiet(self) -> None:
        """Raises ContractError if anything is left open. For the end, when nothing is on its way any more."""
        self._placings.check_ended()

    # ------------------------------------------------------------------------------ what cores say

    def _on_context(self, broker: BrokerId, context: RouterContext) -> None:
        self._maps[broker] = context.network.nodes

    def _on_frame(self, broker: BrokerId, _frame: routing.FrameArrived) -> None:
        self._frames[broker] = self._frames.get(broker, 0) + 1

    def _on_pubend(self, broker: BrokerId, opened: routing.Opened) -> None:
        meta = opened.meta
        membership = self.memberships.setdefault(meta.pubend, Members(meta.pubend, broker))
        membership.hand_over(broker, meta, opened.members, self._call)

    def _on_know(self, _broker: BrokerId, said: routing.Know) -> None:
        knowledge = said.knowledge
        if knowledge.stamp is not None:
            raise ContractError(Clause.CORES, f"{knowledge.pubend} said filtered knowledge")
        if said.reply_to is not None and not knowledge.reply:
            raise ContractError(Clause.CORES, f"{knowledge.pubend} answered, and did not say that it is an answer")
        truth = self.truths.get(knowledge.pubend)
        if truth is None:
            truth = self.truths[knowledge.pubend] = PubendTruth(knowledge.pubend)
        truth.know(knowledge)

    def _on_enrolled(self, broker: BrokerId, said: routing.Enrolled) -> None:
        membership = self.memberships.get(said.pubend)
        if membership is None or membership.broker != broker:
            raise ContractError(Clause.CORES, f"{said.pubend} enrolled {said.shb}, and was not opened at this broker")
        membership.enrol(said.shb, said.at, self._call)

    def _on_held(self, _broker: BrokerId, held: routing.Held) -> None:
        _add(self._held.setdefault((self._homes.get(held.shb, ""), held.pubend, held.version), []), held)

    def _on_submitted(self, broker: BrokerId, said: routing.Submitted) -> None:
        self._placings.answer(broker, said.reply_to, said.pubend, said.outcome)

    def _on_interest(self, broker: BrokerId, interest: routing.Interest) -> None:
        shb = interest.shb
        self._shbs.setdefault(broker, {})[shb] = None
        self._homes[shb] = broker
        if shb not in self.interests:
            self.interests[shb] = InterestHistory(shb)
        self.interests[shb].announce(interest)

    def _on_hold(self, _broker: BrokerId, row: Hold) -> None:
        _add(self._rows.setdefault((row.pubend, row.shb, row.version), []), row)

    def _on_progress(self, broker: BrokerId, progress: routing.Progress) -> None:
        membership = self.memberships.get(progress.pubend)
        if membership is None:
            raise ContractError(Clause.CORES, f"{progress.shb} reports on {progress.pubend}, which is nowhere")
        membership.report(broker, progress)

    def _on_post(self, broker: BrokerId, post: routing.Post) -> None:
        self._posted[broker, post.to_node, post.role, post.data] = None

    # ------------------------------------------------------------------------------ what routers say

    def _check_undial(self, broker: BrokerId, undial: routing.Undial) -> None:
        nodes = self._maps.get(broker)
        if nodes is not None and (undial.peer not in nodes or undial.peer == broker):
            raise ContractError(Clause.SEAM, f"{undial} names nobody else whom the map has")

    def _check_deliver(self, _broker: BrokerId, deliver: routing.Know) -> None:
        knowledge = deliver.knowledge
        truth = self.truths.get(knowledge.pubend)
        if truth is None:
            raise ContractError(Clause.TRUTH, f"knowledge of {knowledge.pubend}, which never said anything")
        for shb, version in (knowledge.stamp or {}).items():
            if version >= 1:
                self._check_stamp(knowledge.pubend, shb, version)
        truth.check(knowledge, self.interests)

    def _check_stamp(self, pubend: PubendId, shb: ShbId, version: int) -> None:
        history = self.interests.get(shb)
        if history is None or not history.knows(version):
            raise ContractError(Clause.TRUTH, f"a stamp has version {version} of {shb}, which it never announced")
        membership = self.memberships.get(pubend)
        if membership is not None:
            membership.check_stamp(shb)

    def _check_seen(self, broker: BrokerId, seen: routing.Seen) -> None:
        membership = self.memberships.get(seen.meta.pubend)
        if membership is None:
            raise ContractError(Clause.TRUTH, f"{seen.meta.pubend} is said to exist, and was opened nowhere")
        truth = self.truths.get(seen.meta.pubend)
        stable = truth.stable if truth else 0
        membership.check_seen(seen.meta, seen.enrolled_at, self._shbs.get(broker, {}), stable)

    def _check_enrol(self, broker: BrokerId, enrol: routing.Enrol) -> None:
        self._check_is_here(Clause.ENROL, broker, enrol.pubend)
        if enrol.shb not in self.interests:
            raise ContractError(Clause.ENROL, f"{enrol.shb} is to be counted, and never said what it wants")
        key = enrol.pubend, enrol.shb
        self.enrolments[key] = self.enrolments.get(key, 0) + 1

    def _check_hold(self, broker: BrokerId, row: routing.Hold) -> None:
        self._check_is_here(Clause.HOLD, broker, row.pubend)
        if row not in self._rows.get((row.pubend, row.shb, row.version), ()):
            raise ContractError(Clause.HOLD, f"{row} is asked of the PHB, and not by its SHB")

    def _check_held(self, broker: BrokerId, held: routing.Held) -> None:
        if held not in self._held.get((broker, held.pubend, held.version), ()):
            raise ContractError(Clause.HOLD, f"{held} is answered, and not by the PHB")

    def _check_released(self, broker: BrokerId, said: routing.Released) -> None:
        membership = self.memberships.get(said.pubend)
        if membership is None:
            raise ContractError(Clause.MINIMA, f"a release of {said.pubend}, which was opened nowhere")
        minima, frames = Minima(said.released, said.delivered), self._frames.get(broker, 0)
        membership.check_released(broker, minima, self._call, frames)

    def _check_posted(self, broker: BrokerId, said: routing.Posted) -> None:
        mail = said.from_node, broker, said.role, said.data
        if mail not in self._posted:
            raise ContractError(Clause.MAIL, f"{said} has come, and was not posted so")
        self.arrived[mail] = None

    def _check_is_here(self, clause: Clause, broker: BrokerId, pubend: PubendId) -> None:
        membership = self.memberships.get(pubend)
        if membership is None or membership.broker != broker:
            raise ContractError(clause, f"{pubend} is asked at a broker that does not have it")


def _add(known: list[Thing], thing: Thing) -> None:
    if thing not in known:
        known.append(thing)

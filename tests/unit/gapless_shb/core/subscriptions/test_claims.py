"""A home claims its subscriptions where transactions store positions (protocol: transactions; TS12, TS13)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network import facts as r
from gapless.core.ports import ClientSession, SessionEnded
from gapless.core.wire import messages as m
from gapless.core.wire.tokens import CheckpointToken
from gapless_shb.core.subscriptions.waiting import Reason
from unit.gapless_shb.core.harness import BASE, PUBEND
from unit.gapless_shb.core.subscriptions.test_commits import CommittingRig, at

OUT = "out@1"


class Claiming(CommittingRig):
    """A broker whose subscription `s` has transactions, and the pubend of their outputs."""

    def enlist(self, session: ClientSession, to: m.Subscribed, number: int, pubend: str = OUT) -> None:
        self.feed(m.Commit(to.sid, to.epoch, number, [], None, pubend), session)

    def answer_claims(self, tick: int = 0, verdict: r.Verdict = r.Verdict.OK) -> list[tuple[str, int]]:
        """Pubends answer all claims. Returns which pubends were asked, and under which epochs."""
        claims, self.claims = self.claims, []
        tokens = (str(CheckpointToken("net", {PUBEND: tick}, 1, 1)),) if tick else ()
        for claim in claims:
            outcome = r.Outcome(verdict, "no", tokens=tokens if verdict is r.Verdict.OK else ())
            self.feed(r.Submitted(claim.reply_to, claim.request.pubend, outcome))
        self.sync()
        return [(claim.request.pubend, claim.request.epoch) for claim in claims]


@pytest.fixture
def world() -> Claiming:
    return Claiming()


def enlisted(world: Claiming) -> tuple[ClientSession, m.Subscribed]:
    session = world.session("a")
    answer = world.come(session)
    world.enlist(session, answer, 1)
    world.sync()
    world.answer_claims()
    assert world.committed(session) == [1]
    return session, answer


def waits(world: Claiming, session: ClientSession, **more: Any) -> None:
    world.ask(session, **more)
    world.sync()
    world.sync()


def test_a_pubend_is_enlisted_durably_and_claimed_before_the_answer(world: Claiming) -> None:
    session = world.session("a")
    answer = world.come(session)
    assert (answer.key, answer.claim, answer.enlisted) == (f"{world.shb}/1/1", 1, ())
    world.enlist(session, answer, 1)
    assert world.claims == []

    world.sync()
    assert world.committed(session) == []
    assert world.answer_claims() == [(OUT, 1)]
    assert world.committed(session) == [1]


def test_whoever_attaches_goes_on_behind_what_transactions_have_stored(world: Claiming) -> None:
    enlisted(world)
    tick = world.log_event()
    other = world.session("b")
    world.ask(other)
    assert world.reasons == [Reason.RECORD]
    world.sync()
    world.sync()
    assert world.reasons == [Reason.CLAIM]
    assert world.answer_to(other) is None

    assert world.answer_claims(tick) == [(OUT, 2)]
    answer = world.answer_to(other)
    assert (at(answer), answer.claim, answer.enlisted) == (tick, 2, (OUT,))
    assert world.reasons == []


def test_who_reads_by_ranges_waits_for_the_claims_too_and_its_end_ends_that(world: Claiming) -> None:
    session, _ = enlisted(world)
    world.feed(SessionEnded(session))
    reader, gone = world.session("b"), world.session("c")
    for each in (reader, gone):
        attach = m.Attach(1, "s", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"")
        world.role.requests()[m.Attach](each, attach, world.now, world.wall)
    world.sync()
    world.sync()
    assert world.reasons == [Reason.CLAIM, Reason.CLAIM]

    world.feed(SessionEnded(gone))
    assert world.reasons == [Reason.CLAIM]
    world.answer_claims()
    assert [type(message) for message in world.heard[reader.number]] == [m.AttachedTo]
    assert world.heard.get(gone.number) is None
    assert world.reasons == []


def test_who_comes_back_keeps_its_claim(world: Claiming) -> None:
    session, answer = enlisted(world)

    again = world.come(session, known=answer)
    assert (again.epoch, again.claim, again.enlisted, world.claims) == (2, 1, (OUT,), [])


def test_who_keeps_its_own_token_fences_transactions_too(world: Claiming) -> None:
    enlisted(world)
    reader = world.session("b")
    waits(world, reader, commits=False)
    assert world.answer_to(reader) is None

    assert world.answer_claims() == [(OUT, 2)]
    assert world.answer_to(reader).key == ""


def test_a_pubend_that_does_not_answer_puts_the_consumer_off(world: Claiming) -> None:
    enlisted(world)
    other = world.session("b")
    waits(world, other)
    world.answer_claims(verdict=r.Verdict.UNCERTAIN)
    failed = world.answer_to(other)
    assert (type(failed), failed.code) == (m.RequestFailed, m.Code.RETRY)
    assert OUT in failed.reason

    waits(world, other, request=2)
    assert world.answer_claims() == [(OUT, 3)]
    assert isinstance(world.answer_to(other), m.Subscribed)


def test_enlisted_pubends_outlive_a_crash(world: Claiming) -> None:
    enlisted(world)
    world.crash()
    world.sync()
    other = world.session("b")
    waits(world, other)

    assert world.answer_claims() == [(OUT, 2)]


def test_of_two_that_attach_the_first_is_told_that_it_lost(world: Claiming) -> None:
    enlisted(world)
    first, second = world.session("b"), world.session("c")
    waits(world, first)
    waits(world, second)
    assert world.answer_claims() == [(OUT, 2), (OUT, 3)]

    assert world.answer_to(first).code is m.Code.TAKEN_OVER
    assert world.answer_to(second).claim == 3


def test_a_stored_position_that_is_ahead_is_judged_before_anything_is_handed_out(world: Claiming) -> None:
    enlisted(world)
    other = world.session("b")
    waits(world, other)
    world.answer_claims(BASE + (1 << 40))
    assert world.answer_to(other) is None

    world.sync()
    world.answer_holds()
    assert world.answer_to(other).code is m.Code.TOKEN_AHEAD


def test_a_removed_subscription_is_forgotten_at_its_pubends(world: Claiming) -> None:
    session, _ = enlisted(world)
    world.feed(m.Unsubscribe(5, "s", "c"), session)
    assert world.claims == []
    world.sync()
    (told,) = world.claims
    assert (told.request.pubend, told.request.ending) == (OUT, r.Ending.CLOSED)

    world.claims.clear()
    world.crash()
    world.sync()
    assert world.answer_claims() == [(OUT, 0)]
    world.sync()
    world.crash()
    world.sync()
    assert world.claims == []


def test_who_reads_by_ranges_fences_transactions_of_whoever_left(world: Claiming) -> None:
    session, answer = enlisted(world)
    world.feed(m.Detach(answer.sid, handed=[]), session)
    tick = world.log_event()
    reader = world.session("r")
    world.feed(m.Attach(7, "s", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b""), reader)
    world.sync()

    def answers() -> list[Any]:
        return [each for each in world.heard.get(reader.number, []) if isinstance(each, m.AttachedTo)]

    assert answers() == []
    assert world.answer_claims(tick) == [(OUT, 2)]
    assert len(answers()) == 1


def test_a_claim_names_the_node_where_the_pubend_was(world: Claiming) -> None:
    """After a start no router may have heard of the pubend: then that node alone can say that it is gone."""
    session = world.session("a")
    answer = world.come(session)
    world.enlist(session, answer, 1, PUBEND)
    world.sync()

    assert [claim.request.node for claim in world.claims] == [world.hosting.streams[PUBEND].meta.broker]
    assert world.claims[0].request.node

"""A consumer at another SHB than its home: how it comes, what it gets, and what the home learns (protocol: roaming)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.gauges import values_by
from gapless.core.network import facts as r
from gapless.core.ports import ClientSession
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import FOREVER
from gapless.core.wire import messages as m
from gapless.selectors.parser import SelectorLimits
from gapless_shb.core.roaming import mail, matches
from gapless_shb.core.state import gauges
from gapless_shb.core.state.broker_state import ALL_IS_SAID
from gapless_shb.core.state.registry import SUBSCRIPTIONS
from gapless_shb.core.state.rows import POSITIONS
from unit.gapless_shb.core.harness import PUBEND
from unit.gapless_shb.core.roaming.harness import Pair, Token, begins


def attached(pair: Pair, **how: Any) -> tuple[ClientSession, m.Subscribed]:
    session = pair.come(pair.other, **how)
    return session, pair.attached(pair.other, session)


# ----------------------------------------------------------------------------------------- what cannot be

FALSE = 1 << 61


@pytest.mark.parametrize(
    "false",
    [
        mail.Renewed("shb", 1, 1, 1, 1, mail.Standing((mail.Row(PUBEND, 0, FALSE, 0, 0),))),
        mail.Renewed("shb", 1, 1, 1, 1, mail.Standing((), 0, {PUBEND: FALSE})),
        mail.Renewed("shb", 1, 1, 1, 1, mail.Standing(), (mail.Matched(PUBEND, 0, FALSE, ()),)),
        mail.Answer("shb", 1, 1, m.Done(1), mail.Standing((mail.Row(PUBEND, 0, 0, 0, 0, FALSE),))),
        mail.Renew("shb", 1, 1, "home", 1, 1, 1, "c", "i", (m.Acknowledged(PUBEND, FALSE, 0),)),
        mail.Renew("shb", 1, 1, "home", 1, 1, 1, "c", "i", nothing_upto=(m.Position(PUBEND, FALSE),)),
        mail.Renew("shb", 1, 1, "home", 1, 1, 1, "c", "i", doubts=(mail.LostRange(PUBEND, 0, FALSE),)),
    ],
    ids=["row", "start", "matched", "answer", "acknowledged", "passed", "doubt"],
)
def test_mail_of_a_tick_that_cannot_be_is_not_believed_and_names_its_node(false: mail.Mail) -> None:
    pair = Pair()
    data = mail.encode(false)
    assert data is not None
    pair.home.feed(r.Posted("shb9", "shb", data))

    assert pair.home.alarms == ["impossible_tick"]


def test_a_false_renewal_acknowledges_nothing() -> None:
    pair = Pair()
    attached(pair)
    events = pair.publish(3)
    renewals: list[mail.Renew] = []
    while not renewals:
        pair.other.pause(250)
        pair.other.sync()
        renewals = [said for said in pair.mail() if isinstance(said, mail.Renew)]
    (kept,) = pair.home.hosting.registry
    before = pair.home.stream.positions[kept.sid].acked
    false = replace(renewals[-1], acknowledged=(m.Acknowledged(PUBEND, FALSE, events[-1]),))
    pair.home.feed(r.Posted(pair.other.node, "shb", mail.encode(false) or b""))

    assert pair.home.stream.positions[kept.sid].acked == before


# ----------------------------------------------------------------------------------------- how it comes


def test_a_name_is_created_at_its_home_and_consumed_where_its_client_is() -> None:
    pair = Pair()
    session = pair.come(pair.other)

    answer = pair.attached(pair.other, session)
    assert (answer.home, answer.created) == (pair.home.shb, True)
    kept = pair.home.hosting.registry.find("c", "s")
    assert kept is not None
    assert answer.home_sid == kept.sid
    events = pair.publish(3)
    assert pair.ticks(pair.other, session) == events
    assert pair.ticks(pair.home, session) == []
    assert pair.other.rows(SUBSCRIPTIONS) == {}
    assert pair.other.rows(POSITIONS) == {}


def test_its_home_limits_its_selector_and_no_other_shb() -> None:
    """A consumer that fails over must not be refused for what another broker is configured to take."""
    pair = Pair()
    pair.other.hosting.selector_limits = SelectorLimits(characters=4, tokens=4)
    session, larger = pair.session(), pair.session()
    pair.subscribe(pair.other, session, selector="x = 1")
    pair.settle(1000)

    assert pair.attached(pair.other, session).created
    pair.leave(pair.other, session)
    pair.home.hosting.selector_limits = SelectorLimits(characters=6, tokens=4)
    pair.subscribe(pair.other, larger, selector="x = 100")
    pair.settle(1000)
    refused = pair.refused(pair.other, larger)
    assert "takes 6 characters" in refused.reason


def test_one_that_stands_on_more_pubends_than_a_mail_tells_of_is_not_made_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was made, could not be consumed there, and held the log back for nobody."""
    pair = Pair()
    monkeypatch.setattr("gapless_shb.core.subscriptions.checks.MAIL_BYTES_MAX", 2100)
    there, here = pair.session("there"), pair.session("here")
    pair.subscribe(pair.other, there)
    pair.settle(1000)

    refused = pair.refused(pair.other, there)
    assert refused.code is m.Code.CONFIGURATION
    assert "subscription 's' stands on 1 pubends: to be consumed elsewhere than at its home, " in refused.reason
    assert "2,100 is the most" in refused.reason
    assert pair.home.hosting.registry.find("c", "s") is None
    pair.subscribe(pair.home, here)
    pair.settle(1000)
    assert pair.attached(pair.home, here).created


def test_it_is_known_by_its_name_at_every_shb() -> None:
    pair = Pair()
    here = pair.come(pair.home, "one")
    pair.leave(pair.home, here)
    events = pair.publish(2)

    session = pair.come(pair.other, "two", wait=2000)

    assert not pair.attached(pair.other, session).created
    assert pair.ticks(pair.other, session) == events


def test_a_consumer_moves_between_both_and_gets_every_event_once() -> None:
    pair = Pair()
    at, tick, token, got, sent = pair.home, 0, None, [], []
    for turn in range(6):
        session = pair.come(at, "same", token=token, again=token is not None)
        answer = pair.attached(at, session)
        tick = tick or begins(answer)
        sent += pair.publish(2)
        pair.settle(500)
        new = pair.ticks(at, session)
        got += new
        tick = new[-1]
        token = Token(answer, tick)
        if turn % 2:
            pair.acknowledge(at, session, tick)
            pair.leave(at, session)
            sent += pair.publish(1)
            pair.settle(500)
        at = pair.other if at is pair.home else pair.home
    assert got == sent[: len(got)]
    assert len(sent) - len(got) <= 1


@pytest.mark.parametrize("where", ["home", "other"])
def test_a_request_that_does_not_fit_is_refused_as_at_home(where: str) -> None:
    pair = Pair()
    session, _ = attached(pair)
    pair.leave(pair.other, session)
    pair.settle(1000)

    again = pair.session()
    node = getattr(pair, where)
    pair.subscribe(node, again, selector="n = 1")
    pair.settle(1000)

    answer = pair.refused(node, again)
    assert answer.code is m.Code.MISMATCH


def test_it_is_removed_from_any_shb() -> None:
    pair = Pair()
    session, _ = attached(pair)
    asking = pair.session("other")
    pair.other.feed(m.Unsubscribe(9, "s", "c"), asking)
    pair.settle(1000)

    assert pair.answer(pair.other, asking) == m.Done(9)
    (gone,) = pair.got(pair.other, session, m.Detached)
    assert isinstance(gone, m.Detached)
    assert gone.code is m.Code.UNSUBSCRIBED
    assert len(pair.home.hosting.registry) == len(pair.other.hosting.registry) == 0


# -------------------------------------------------------------------------------------- a silent home


def test_nothing_is_created_while_the_home_is_silent() -> None:
    pair = Pair()
    pair.cut = True
    session = pair.come(pair.other, wait=2000)
    assert pair.answer(pair.other, session) is None
    assert waits_for_its_home(pair) == 1
    pair.settle(2000)

    answer = pair.refused(pair.other, session)
    assert answer.code is m.Code.RETRY
    assert len(pair.other.hosting.registry) == 0
    assert waits_for_its_home(pair) == 0


def waits_for_its_home(pair: Pair) -> float:
    return values_by(pair.other.role.gauges(), gauges.WAITING, "reason")["home"]


def test_a_home_that_answers_whose_client_has_gone_has_its_lease_back() -> None:
    pair = Pair()
    pair.cut = True
    session = pair.session()
    pair.subscribe(pair.other, session)
    pair.settle(500)
    pair.leave(pair.other, session)
    assert waits_for_its_home(pair) == 0
    pair.cut = False
    pair.subscribe(pair.other, pair.session("j"))  # after it, the home drops the question of the first one
    pair.settle(1000)

    (consumer,) = pair.home.hosting.consumers.values()
    assert consumer.instance == "j"
    assert waits_for_its_home(pair) == 0


def test_a_token_of_an_existing_subscription_is_enough_while_the_home_is_silent() -> None:
    pair = Pair()
    session, answer = attached(pair)
    events = pair.publish(2)
    pair.cut = True
    pair.leave(pair.other, session)
    events += pair.publish(2)

    again = pair.come(pair.other, "another process", token=Token(answer, events[0]), wait=5000)

    assert pair.attached(pair.other, again).home_sid == answer.home_sid
    assert pair.ticks(pair.other, again) == events[1:]


@pytest.mark.parametrize(
    ("on_change", "silent"),
    [*((change, False) for change in m.OnChange), (m.OnChange.ERROR, True), (m.OnChange.KEEP_POSITION, True)],
)
def test_a_blank_is_no_change_away_from_home(on_change: m.OnChange, *, silent: bool) -> None:
    """Neither where the home answers, nor where the token alone proves what it is of."""
    pair = Pair()
    session = pair.come(pair.other, selector="n=1 or n>1", wait=0)
    answer = pair.attached(pair.other, session)
    events = pair.publish(2)
    pair.settle()
    pair.cut = silent
    pair.leave(pair.other, session)
    pair.settle(1000)

    again = pair.session("another process")
    token = Token(answer, begins(answer)) if silent else None
    pair.subscribe(pair.other, again, token=token, selector=" n = 1  OR n > 1", on_change=on_change)
    pair.settle(5000)

    assert pair.attached(pair.other, again).home_sid == answer.home_sid
    assert pair.ticks(pair.other, again) == [tick for tick in events if tick in pair.ticks(pair.other, session)]


@pytest.mark.parametrize("change", ["selector", "seal", "no token"])
def test_what_the_token_does_not_prove_waits_for_the_home(change: str) -> None:
    pair = Pair()
    session, answer = attached(pair)
    pair.leave(pair.other, session)
    pair.settle(1000)
    pair.cut = True
    token: Token | None = Token(answer, begins(answer))
    if change == "seal":
        token = Token(m.Subscribed(1, answer.sid, 1, b"12345678", False, [], answer.home, answer.home_sid), 1)
    if change == "no token":
        token = None

    again = pair.come(pair.other, token=token, selector="n = 1" if change == "selector" else "", wait=5000)

    refused = pair.refused(pair.other, again)
    assert refused.code is m.Code.RETRY


def test_a_home_that_comes_back_takes_the_consumer_into_account_again() -> None:
    pair = Pair()
    session, answer = attached(pair)
    events = pair.publish(2)
    pair.home.crash()
    pair.settle(7000)
    pair.acknowledge(pair.other, session, events[1])
    pair.settle(7000)

    assert answer.home_sid in pair.home.hosting.consumers
    assert pair.home.stream.positions[answer.home_sid].acked >= events[1]
    assert pair.release() >= events[1]


# ------------------------------------------------------------------------------------------- the attachment


def test_a_consumer_at_home_and_one_elsewhere_are_one_too_many() -> None:
    pair = Pair()
    first, _ = attached(pair)
    second = pair.come(pair.home, "another process", wait=500)
    refused = pair.refused(pair.home, second)
    assert refused.code is m.Code.IN_USE

    pair.subscribe(pair.home, second, in_use=m.InUse.TAKEOVER)
    pair.settle(500)
    assert isinstance(pair.answer(pair.home, second), m.Subscribed)
    (gone,) = pair.got(pair.other, first, m.Detached)
    assert isinstance(gone, m.Detached)
    assert gone.code is m.Code.TAKEN_OVER
    assert len(pair.other.hosting.registry) == 0


def test_one_that_waits_gets_it_when_the_other_leaves() -> None:
    pair = Pair()
    first = pair.come(pair.home, "one")
    second = pair.come(pair.other, "two", in_use=m.InUse.WAIT, wait=8000)
    assert pair.answer(pair.other, second) is None

    pair.leave(pair.home, first)
    pair.settle(2000)
    assert isinstance(pair.answer(pair.other, second), m.Subscribed)


def test_the_lease_of_an_shb_that_died_ends() -> None:
    pair = Pair()
    _, answer = attached(pair)
    pair.cut = True
    pair.settle(30_000, 1000)

    assert answer.home_sid not in pair.home.hosting.consumers
    second = pair.come(pair.home, "two", wait=500)
    assert isinstance(pair.answer(pair.home, second), m.Subscribed)


def test_an_shb_that_starts_anew_gives_its_leases_back() -> None:
    pair = Pair()
    _, answer = attached(pair)
    pair.other.crash()
    again = pair.session("two")
    pair.settle(500)
    pair.subscribe(pair.other, again)
    pair.settle(1000)

    assert pair.attached(pair.other, again).home_sid == answer.home_sid


def test_after_a_partition_the_one_that_the_home_has_stays() -> None:
    pair = Pair()
    first, answer = attached(pair)
    pair.cut = True
    pair.settle(30_000, 1000)
    second = pair.come(pair.home, "two", wait=500)
    assert not pair.attached(pair.home, second).created
    events = pair.publish(1)
    pair.settle(1000)
    assert pair.ticks(pair.home, second) == pair.ticks(pair.other, first) == events

    pair.cut = False
    pair.settle(7000)
    (gone,) = pair.got(pair.other, first, m.Detached)
    assert isinstance(gone, m.Detached)
    assert gone.code is m.Code.TAKEN_OVER
    assert answer.home_sid in pair.home.hosting.consumers


@pytest.mark.parametrize("in_use", m.InUse)
def test_one_that_came_while_the_home_was_silent_takes_over_as_it_would_have(in_use: m.InUse) -> None:
    """Else it learns that the subscription was in use, and not that anybody has come (roaming 1880, 20296)."""
    pair = Pair()
    first, answer = attached(pair)
    pair.leave(pair.other, first)
    pair.settle(1000)
    second = pair.come(pair.home, "two", wait=500)
    pair.cut = True
    third = pair.session("three")
    pair.subscribe(pair.other, third, token=Token(answer, begins(answer)), in_use=in_use)
    pair.settle(5000)
    assert pair.attached(pair.other, third).home_sid == answer.home_sid
    pair.cut = False
    pair.settle(7000)

    at_home, elsewhere = pair.got(pair.home, second, m.Detached), pair.got(pair.other, third, m.Detached)
    codes = [[each.code for each in gone if isinstance(each, m.Detached)] for gone in (at_home, elsewhere)]
    assert codes == ([[m.Code.TAKEN_OVER], []] if in_use is m.InUse.TAKEOVER else [[], [m.Code.IN_USE]])
    assert len(pair.home.hosting.consumers) == 1


def test_a_question_that_the_home_has_not_heard_takes_nothing_from_a_later_one_that_it_has_answered() -> None:
    """Found by the simulator (roaming 19): its client had gone, and this SHB had not heard of that yet."""
    pair = Pair()
    first, answer = attached(pair)
    pair.leave(pair.other, first)
    pair.settle(1000)
    had = Token(answer, begins(answer))
    pair.cut = True
    early, late = pair.session("one"), pair.session("two")
    pair.subscribe(pair.other, early, token=had, in_use=m.InUse.TAKEOVER)
    pair.exchange()
    pair.cut = False
    pair.subscribe(pair.other, late, token=had)
    pair.exchange()
    pair.attached(pair.other, late)
    pair.cut = True
    pair.settle(5000)

    refused = pair.refused(pair.other, early)
    assert refused.code is m.Code.RETRY
    assert not pair.got(pair.other, late, m.Detached)


# ------------------------------------------------------------------------------- acknowledgements, release


def test_only_the_home_holds_the_log_back_and_acknowledgements_reach_it() -> None:
    pair = Pair()
    session, answer = attached(pair)
    before = pair.home.lost
    events = pair.publish(3)
    pair.settle(7000)
    assert pair.release() < events[0]
    assert pair.other.progress[0] >= events[-1]

    pair.posted.clear()
    pair.cut = True
    pair.acknowledge(pair.other, session, events[1])
    pair.settle(2000)
    pair.cut = False
    pair.settle(7000)

    assert pair.home.stream.positions[answer.home_sid].acked == events[1]
    assert before < events[1] <= pair.release() < events[2]


def test_a_consumer_that_acknowledges_all_the_time_keeps_its_lease_and_lets_the_log_go() -> None:
    """Each acknowledgement comes before the one before it was mailed, for longer than an attachment."""
    pair = Pair()
    session, answer = attached(pair)
    events = []
    for _ in range(220):
        events += pair.publish(1)
        pair.acknowledge(pair.other, session, events[-1])
        pair.settle(100, 100)

    assert answer.home_sid in pair.home.hosting.consumers
    assert pair.home.stream.positions[answer.home_sid].acked >= events[-10]


def test_what_a_consumer_acknowledged_before_it_left_is_repeated_until_the_home_has_it() -> None:
    pair = Pair()
    session, answer = attached(pair)
    events = pair.publish(2)
    pair.cut = True
    pair.acknowledge(pair.other, session, events[1])
    pair.leave(pair.other, session)
    pair.settle(40_000, 1000)
    pair.cut = False
    pair.settle(3000)

    assert pair.home.stream.positions[answer.home_sid].acked == events[1]
    assert answer.home_sid not in pair.home.hosting.consumers
    assert pair.mail() == []


# ------------------------------------------------------------------------------------------------ gaps


def with_old_token(*, silent: bool) -> tuple[Pair, ClientSession, Token, list[int]]:
    """A consumer with a token from before quiet ticks, whose events of others are gone from the log."""
    pair = Pair()
    session = pair.come(pair.other, "one", selector="n < 2")
    answer = pair.attached(pair.other, session)
    events = pair.publish(2)
    pair.acknowledge(pair.other, session, events[1])
    pair.publish(4)
    pair.settle(7000)
    pair.leave(pair.other, session)
    pair.settle(2000)
    pair.publish(2)
    pair.settle(7000)
    assert pair.release() > events[1] + 1
    pair.cut = silent
    return pair, pair.session("two"), Token(answer, events[1]), events


def test_ticks_that_the_subscription_was_idle_in_are_silence_to_a_guest_too() -> None:
    pair, session, token, _ = with_old_token(silent=False)
    pair.subscribe(pair.other, session, token=token, selector="n < 2")
    pair.settle(3000)

    assert pair.got(pair.other, session, m.DeliverGap) == []
    told = pair.got(pair.other, session, m.DeliverSilence)
    assert max(each.upto for each in told) > pair.home.lost  # type: ignore[attr-defined]


def test_while_the_home_is_silent_nobody_invents_a_gap() -> None:
    pair, session, token, _ = with_old_token(silent=True)
    pair.subscribe(pair.other, session, token=token, selector="n < 2")
    pair.settle(12_000)

    assert isinstance(pair.answer(pair.other, session), m.Subscribed)
    assert pair.got(pair.other, session, m.DeliverGap) == []
    (why,) = pair.got(pair.other, session, m.Delayed)
    assert isinstance(why, m.Delayed)
    assert pair.home.node in why.reason
    assert pair.other.alarms == ["home_silent"]

    pair.cut = False
    pair.settle(4000)
    assert pair.got(pair.other, session, m.DeliverGap) == []
    told = pair.got(pair.other, session, m.DeliverSilence)
    assert max(each.upto for each in told) > pair.home.lost  # type: ignore[attr-defined]


def test_what_it_acknowledged_itself_is_a_gap_to_an_older_token() -> None:
    pair, session, token, events = with_old_token(silent=False)
    older = Token(token.answer, events[0])
    pair.subscribe(pair.other, session, token=older, selector="n < 2")
    pair.settle(3000)

    (gap,) = pair.got(pair.other, session, m.DeliverGap)
    assert isinstance(gap, m.DeliverGap)
    assert gap.start < events[1] <= gap.end


# -------------------------------------------------------------------------------------------- bad mail


def test_garbage_in_the_mail_is_ignored() -> None:
    pair = Pair()
    for data in (b"", b"\x93\x01\x02", b"\xc1", b"hello"):
        pair.home.feed(r.Posted("shb2", "shb", data))
    assert pair.posted == []


def test_a_gap_is_asked_about_on_its_own_pubend() -> None:
    pair = Pair()
    _, answer = attached(pair)
    ask, head = pair.other.hosting.ask_home, pair.home.stream.head
    assert PUBEND in {each.pubend for each in answer.positions}
    assert ask(answer.sid, PUBEND, head - 2, head, pair.other.now) is None
    pair.settle(1000)
    assert ask(answer.sid, PUBEND, head - 2, head, pair.other.now) is not None
    assert ask(answer.sid, "q@1", 0, 1, pair.other.now) is None


def told(pair: Pair, sid: int, lo: int, hi: int) -> tuple[list[int], int]:
    """Which ticks the home leaves in doubt, and up to where it has looked."""
    ask = pair.other.hosting.ask_home
    assert ask(sid, PUBEND, lo, hi, pair.other.now) is None
    pair.settle(2000)
    said = ask(sid, PUBEND, lo, hi, pair.other.now)
    assert said is not None
    return [end for _, end in IntervalSet([(lo, min(hi, said.upto))]) - IntervalSet(said.silent)], said.upto


def test_the_home_says_what_its_pfs_has_of_ticks_that_are_lost() -> None:
    pair = Pair()
    session, answer = attached(pair)
    first = pair.publish(1)[0]
    pair.settle(2000)
    ticks = pair.publish(3)
    pair.settle(2000)
    pair.leave(pair.other, session)
    session, answer = attached(pair)
    head = pair.home.stream.head

    assert told(pair, answer.sid, first, head) == (ticks, head)
    assert told(pair, answer.sid, ticks[0], ticks[2] - 1) == ([ticks[1]], ticks[2] - 1)
    late = pair.publish(2)  # in the open block
    head = pair.home.stream.head
    found, upto = told(pair, answer.sid, ticks[2], head)
    if upto < head:
        more, upto = told(pair, answer.sid, upto, head)
        found += more
    assert (found, upto) == (late, head)


def test_the_home_says_nothing_of_ticks_that_its_pfs_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    session, answer = attached(pair)
    first, *ticks = pair.publish(5)
    pair.settle(2000)
    head, position = pair.home.stream.head, pair.home.stream.positions[answer.home_sid]

    since, position.since = position.since, FOREVER
    assert pair.other.hosting.ask_home(answer.sid, PUBEND, first, head, pair.other.now) is None
    pair.settle(2000)
    assert pair.other.hosting.ask_home(answer.sid, PUBEND, first, head, pair.other.now) is ALL_IS_SAID
    position.since = since

    monkeypatch.setattr(matches, "TICKS_MOST", 2)
    assert told(pair, answer.sid, first, head) == (ticks[:2], ticks[1])
    assert told(pair, answer.sid, ticks[1], head)[0] == ticks[2:]
    assert session is not None


def test_a_shared_subscription_is_served_at_its_home_alone() -> None:
    pair = Pair()
    session = pair.session()
    request = m.Subscribe(1, "s", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.ERROR, 5, 1 << 20)
    pair.other.feed(replace(request, sharing=m.Sharing(100, durable=True)), session)
    pair.settle()

    refused = pair.refused(pair.other, session)
    assert refused.code is m.Code.CONFIGURATION
    assert refused.node == pair.home.node
    assert pair.home.node in refused.reason

"""A short run of what `python3 dev.py chaos` does, and that its judge sees whatever can be wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from struct import pack

import pytest

import gapless
from chaos.effects import Effects, read_effects
from chaos.history import gathered
from chaos.journal import Journal, journal_path, lines
from chaos.judge import EventId, History, Item, Published, Session, Subscribed, judge
from chaos.nemesis import BROKER, schedule
from chaos.plan import SELECTORS, Plan, Seen, checksum, event_of, plan_of, subscriptions
from chaos.run import Outcome
from chaos.striker import KINDS, Frames, Striker
from documents import ROOT

SEED = 7
KEPT, EARLY = "kept-0@x", "early@x"
EVERYTHING = Plan("sqlite-0", ("#",), "", "sqlite")


@pytest.mark.skipif(sys.platform == "win32", reason="it kills with SIGKILL")
@pytest.mark.timeout(240)
def test_a_short_run_is_right(tmp_path: Path) -> None:
    options = ["--seconds", "12", "--seed", "7", "--json", "--directory", str(tmp_path)]
    command = [sys.executable, str(ROOT / "tests" / "chaos"), *options]

    done = subprocess.run(command, capture_output=True, text=True, timeout=230, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["right"] is True
    assert any(fault.endswith("broker") for fault in said["faults"])
    assert sum(said["faults"].values()) >= 4
    assert said["published"] > 200
    assert said["verdict"]["handed"] > said["published"]


# ------------------------------------------------------------------------------------------ the judge sees it


def item(pubend: str, number: int, publisher: str = "orders", tick: int | None = None) -> Item:
    """An event as it was made, at a place that its number says."""
    made = event_of(SEED, publisher, number)
    return Item(pubend, tick or 1000 * (number + 1), (publisher, number), made.checksum)


def gap(start: int, end: int, pubend: str = EARLY, reason: str = "released early") -> Item:
    return Item(pubend, end, start=start, reason=reason)


def right(plan: Plan = EVERYTHING, resumes: str = "") -> History:
    """Ten events of a publisher in a pubend that keeps all, ten of another in one that does not; two subscriptions."""
    kept = [item(KEPT, number) for number in range(10)]
    early = [item(EARLY, number, "ticker") for number in range(10)]
    published = Published()
    for told in kept + early:
        assert told.event is not None
        published.sent[told.event] = "one"
        published.receipts[told.event] = told.pubend, told.tick
    published.sent["mixed-1", 5] = "one"  # nobody knows what became of it
    start, end = {KEPT: 0, EARLY: 0}, {KEPT: 20_000, EARLY: 20_000}
    wanted = [one for one in kept + early if one.event and plan.wants(Seen(event_of(SEED, *one.event), one.pubend, 1))]
    sessions = [Session(plan.name, start, wanted, end)]
    gone = [*kept, gap(0, 4500), *early[4:]]
    return History(
        event_of=partial(event_of, SEED),
        published=published,
        subscribed=[
            Subscribed(plan, sessions, resumes),
            Subscribed(EVERYTHING, [Session("slow", start, gone, end)]),
        ],
        heads={KEPT: 10_000, EARLY: 10_000},
        lost={KEPT: 0, EARLY: 4500},
        kept={KEPT: kept},
        named=frozenset({"orders", "ticker"}),
    )


def handed(history: History) -> list[Item]:
    """What the first subscription was handed, to be changed."""
    return history.subscribed[0].sessions[0].items


def slow(history: History) -> list[Item]:
    """What the one was handed that met a gap: ten events of `kept` first."""
    return history.subscribed[1].sessions[0].items


def lose_from_the_log(history: History) -> None:
    """An event with a receipt that nobody gets."""
    for items in (handed(history), slow(history), history.kept[KEPT]):
        items[:] = [one for one in items if one.event != ("orders", 3)]


def doubled_in_the_log(history: History) -> None:
    handed(history).insert(10, item(KEPT, 3, tick=15_000))


def turned(history: History) -> None:
    items = handed(history)
    items[3], items[4] = items[4], items[3]


def garbled(history: History) -> None:
    handed(history)[3] = replace(handed(history)[3], checksum=1)


def nobody_sent(history: History) -> None:
    handed(history).insert(10, item(KEPT, 77))


def rejected(history: History) -> None:
    history.published.rejected.add(("orders", 4))


def overtaken(history: History) -> None:
    """The publisher sent 4 before 5."""
    history.published.receipts.clear()
    for items in (handed(history), slow(history), history.kept[KEPT]):
        items[4], items[5] = item(KEPT, 5, tick=5000), item(KEPT, 4, tick=6000)


def early_in_the_log(history: History) -> None:
    history.published.receipts["orders", 4] = KEPT, 5001


def two_at_a_tick(history: History) -> None:
    history.published.receipts["mixed-1", 5] = KEPT, 1000


def not_the_end(history: History) -> None:
    session = history.subscribed[0].sessions[0]
    session.end = {KEPT: 20_000, EARLY: 9_999}


def recovered_and_nowhere(history: History) -> None:
    """Its publisher was told that it is logged, and not where."""
    history.published.sent["trades", 3] = "one"
    history.published.receipts["trades", 3] = "", None


def recovered_too_few(history: History) -> None:
    history.published.recovered.append(("orders", 8, 8))


def refused(history: History) -> None:
    history.told.append(("position refused", "token-1: TokenAheadError"))


WRONG: list[tuple[Callable[[History], object], str]] = [
    (lambda history: handed(history).pop(3), "missing"),
    (lambda history: handed(history).pop(), "missing"),
    (lambda history: handed(history).insert(4, handed(history)[3]), "doubled"),
    (turned, "wrong order"),
    (garbled, "not as it was sent"),
    (nobody_sent, "nobody sent it"),
    (lose_from_the_log, "lost"),
    (lambda history: history.kept[KEPT].pop(3), "lost"),
    (doubled_in_the_log, "logged twice"),
    (early_in_the_log, "logged twice"),
    (two_at_a_tick, "two events at one tick"),
    (rejected, "rejected, and logged"),
    (overtaken, "publisher's order"),
    (recovered_too_few, "recovered too few"),
    (recovered_and_nowhere, "lost"),
    (not_the_end, "not at the end"),
    (refused, "position refused"),
    (lambda history: slow(history).insert(0, gap(0, 500, KEPT)), "false gap"),
    (lambda history: slow(history).__setitem__(10, gap(0, 4500, reason="because")), "false gap"),
    (lambda history: slow(history).__setitem__(10, gap(0, 4502)), "false gap"),
    (lambda history: slow(history).__setitem__(10, gap(0, 3500)), "missing"),
    (lambda history: slow(history).__setitem__(slice(10, 11), [gap(0, 2000), gap(2000, 4500)]), "gap in pieces"),
    (lambda history: slow(history).insert(12, gap(4000, 4400)), "wrong order"),
]


def test_what_fits_is_right() -> None:
    verdict = judge(right())

    assert verdict.is_right, verdict.examples
    assert (verdict.events, verdict.handed, verdict.gaps, verdict.uncertain) == (20, 36, 1, 1)


@pytest.mark.parametrize(
    ("break_it", "kind"), WRONG, ids=[f"{number}-{kind}" for number, (_, kind) in enumerate(WRONG)]
)
def test_what_does_not_fit_is_seen(break_it: Callable[[History], object], kind: str) -> None:
    history = right()

    break_it(history)

    verdict = judge(history)
    assert kind in verdict.findings
    assert verdict.examples


def test_what_was_released_before_anybody_saw_it_is_not_lost() -> None:
    history = right()
    history.published.sent["ticker", 30] = "one"
    history.published.receipts["ticker", 30] = "", None

    assert judge(history).is_right


def test_a_gap_may_end_at_the_tick_behind_what_was_released() -> None:
    history = right()
    slow(history)[10] = gap(0, 4501)

    assert judge(history).is_right


def test_ranges_are_read_by_themselves_and_so_are_their_gaps() -> None:
    history = right()
    slow(history)[10:11] = [gap(0, 2000), replace(gap(2000, 4500), attach=1)]

    assert judge(history).is_right


def test_what_is_for_somebody_else_is_seen() -> None:
    plan = replace(EVERYTHING, selector="JMSPriority > 5")
    history = right(plan)
    assert judge(history).is_right

    everything = [item(KEPT, number) for number in range(10)]
    handed(history)[:] = everything

    assert judge(history).findings["does not match"] == len(
        [one for one in everything if one.event and event_of(SEED, *one.event).priority <= 5]
    )


def test_who_begins_in_the_past_may_find_it_gone_where_nobody_needed_it() -> None:
    plan = replace(EVERYTHING, kind="fleeting", topics=("kept.#",))
    history = right(plan)
    history.lost = {**history.lost, "tight@x": 900, KEPT: 900}
    handed(history).insert(0, gap(0, 900, "tight@x"))

    assert judge(history).is_right

    handed(history).insert(0, gap(0, 900, KEPT))
    assert judge(history).findings["false gap"] == 1


@pytest.mark.parametrize(
    ("resumes", "start", "found"),
    [
        ("acked", 5000, 0),
        ("acked", 3000, 0),
        ("acked", 6000, 1),
        ("handed", 8000, 0),
        ("handed", 10_000, 2),
    ],
)
def test_a_session_that_resumes_passes_over_nothing(resumes: str, start: int, found: int) -> None:
    plan = replace(EVERYTHING, kind="token", topics=("kept.#",))
    history = right(plan, resumes)
    kept = [item(KEPT, number) for number in range(10)]
    first = Session("token", {KEPT: 0}, kept[:8], None, {KEPT: 5000})
    history.subscribed[0].sessions = [first, Session("token", {KEPT: start}, kept[start // 1000 :], {KEPT: 10_000})]

    assert judge(history).findings["passed over"] == found


# ---------------------------------------------------------------------------------------------- what it needs


def test_a_run_follows_from_its_seed() -> None:
    assert len(subscriptions(SEED)) == 30
    assert subscriptions(SEED) == subscriptions(SEED) != subscriptions(8)
    assert [plan_of(plan.fields()) for plan in subscriptions(SEED)] == subscriptions(SEED)
    assert event_of(SEED, "orders", 5) == event_of(SEED, "orders", 5) != event_of(SEED, "orders", 6)
    faults = schedule(SEED, 300, ["a", "b"])
    assert faults == schedule(SEED, 300, ["a", "b"]) != schedule(8, 300, ["a", "b"])
    assert {fault.kind for fault in faults} == {"kill", "stop", "pause", *KINDS}
    assert {fault.kind for fault in faults if fault.target == BROKER} == {"kill", "stop", "pause"}


@pytest.mark.parametrize("selector", SELECTORS)
def test_plain_python_and_selectors_agree(selector: str) -> None:
    """Else the judge would find what is right; a selector that is always the same would find nothing."""
    compiled, outcomes = gapless.Selector(selector), set()
    for number in range(2000):
        made = event_of(SEED, "mixed-1", number)
        tick = (number << 22) + 1
        headers = {
            "JMSPriority": made.priority,
            "JMSType": made.type,
            "JMSCorrelationID": made.correlation_id,
            "JMSDeliveryMode": "PERSISTENT",
            "JMSTimestamp": 1_577_836_800_000 + number,
            "JMSMessageID": f"ID:{KEPT}:{tick}",
        }
        wanted = SELECTORS[selector](Seen(made, KEPT, tick))
        assert compiled.matches(made.properties, headers) is wanted, made
        outcomes.add(wanted)

    assert outcomes == {selector != "region = 'nowhere'"} if selector in ("", "region = 'nowhere'") else {True, False}


def test_what_was_written_down_comes_back(tmp_path: Path) -> None:
    plans = {plan.kind: plan for plan in subscriptions(SEED)}
    orders, consumer = (Journal(journal_path(tmp_path, worker, 0)) for worker in ("orders", "consumer-0"))
    orders.note("sent", publisher="orders", instance="one", first=0, end=3)
    orders.note("receipt", publisher="orders", numbers=[0, 1], pubend=KEPT, ticks=[1000, 2000])
    orders.note("recovered", publisher="orders", count=3)
    orders.note("rejected", publisher="orders", number=2, why="")
    name = plans["token"].name
    consumer.note("attached", name=name, plan=name, attach=0, ticks={KEPT: 500})
    consumer.note(
        "got", attach=0, rows=[[KEPT, 1000, "orders:0", 5, None, None, 0], [EARLY, 9, None, None, 3, "why", 0]]
    )
    consumer.note("acked", attach=0, ticks={KEPT: 1000})
    consumer.note("left", attach=0, ticks={KEPT: 1500})
    consumer.note("refused", name=name, error="TokenAheadError")
    path = journal_path(tmp_path, "consumer-0", 1)
    path.write_text('{"kind":"attached","name"', "utf-8")  # its last line, when it was killed

    history = gathered(tmp_path, SEED, ["consumer-0"], {}, {}, {})

    events: list[EventId] = [("orders", 0), ("orders", 1), ("orders", 2)]
    assert history.published.sent == dict.fromkeys(events, "one")
    assert history.published.receipts == {events[0]: (KEPT, 1000), events[1]: (KEPT, 2000), events[2]: ("", None)}
    assert history.published.rejected == {("orders", 2)}
    assert history.published.recovered == [("orders", 3, 1)]
    (session,) = next(subscribed.sessions for subscribed in history.subscribed if subscribed.plan.name == name)
    assert session == Session(
        name,
        {KEPT: 500},
        [Item(KEPT, 1000, ("orders", 0), 5), Item(EARLY, 9, start=3, reason="why")],
        {KEPT: 1500},
        {KEPT: 1000},
    )
    assert history.told == [("position refused", f"{name}: TokenAheadError")]
    assert list(lines(tmp_path, "nobody")) == []


def test_effects_and_position_are_stored_together(tmp_path: Path) -> None:
    effects = Effects(tmp_path / "e.sqlite")
    effects.store((), "first", is_start=True)
    effects.store([(KEPT, 1000, "orders:0", 5, None, None, 0)], "second")

    with pytest.raises(Exception, match="binding"):
        effects.store([(KEPT, 2000, "orders:1", 6, None, None, 0), (KEPT,)], "third")

    assert effects.token() == "second"
    effects.close()
    start, end, rows = read_effects(tmp_path / "e.sqlite")
    assert (start, end, len(rows)) == ("first", "second", 1)


def test_an_outcome_is_said_as_json() -> None:
    outcome = Outcome(7, 300, Counter({"kill broker": 2}))
    outcome.verdict.find("lost", "orders 3")

    said = json.loads(json.dumps(outcome.fields()))

    assert said["faults"] == {"kill broker": 2}
    assert said["verdict"]["findings"] == {"lost": 1}
    assert said["verdict"]["examples"] == ["lost: orders 3"]
    assert said["right"] is False


# ------------------------------------------------------------------------------------------------ the striker


async def echo_through(striker: Striker, sent: bytes, kind: str = "", seconds: float = 0.2) -> bytes:
    """What comes back when something is sent through a striker."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(striker.url.rpartition(":")[2]))
    try:
        writer.write(b"<")
        assert await reader.readexactly(1) == b"<"
        if kind:
            striker.strike(kind, seconds)
        writer.write(sent)
        return await reader.readexactly(len(sent))
    except asyncio.IncompleteReadError as error:
        return error.partial
    except ConnectionError:
        return b""
    finally:
        writer.close()


SENT = bytes(range(256)) * 4


@pytest.mark.parametrize("kind", ["", "stall", "dribble"])
async def test_what_only_lasts_changes_nothing(echo: str, kind: str) -> None:
    async with Striker(echo, Random(1)) as striker:
        assert await echo_through(striker, SENT, kind) == SENT
        assert striker.done[kind] == bool(kind)


async def test_a_striker_cuts_truncates_corrupts_and_refuses(echo: str) -> None:
    async with Striker(echo, Random(1)) as striker:
        assert not await echo_through(striker, SENT, "cut")
        truncated = await echo_through(striker, SENT, "truncate")
        assert len(truncated) < len(SENT)
        assert SENT.startswith(truncated)
        corrupted = await echo_through(striker, SENT, "corrupt")
        assert [left ^ right for left, right in zip(corrupted, SENT, strict=True)].count(0) == len(SENT) - 1
        striker.strike("refuse", 30)
        assert not await echo_through(striker, SENT)
        striker.heal()
        assert await echo_through(striker, SENT) == SENT
        assert all(striker.done[kind] == 1 for kind in ("cut", "truncate", "corrupt", "refuse"))


@pytest.mark.parametrize("step", [1, 3, 7, 8, 9, 100])
def test_one_whole_frame_is_left_out_however_it_comes(step: int) -> None:
    frames = [pack("<II", len(body), 0) + body for body in (b"one", b"twotwo", b"three")]
    stream, cutter, passed = b"".join(frames), Frames(), b""
    lost = False
    for at in range(0, len(stream), step):
        chunk = stream[at : at + step]
        before = len(passed)
        passed += cutter.take(chunk, lose=not lost)
        lost = lost or len(passed) - before < len(chunk)

    remains = [b"".join(frames[:number] + frames[number + 1 :]) for number in range(3)]
    assert passed in remains if lost else passed == stream
    assert lost or step < 8


def test_every_part_of_an_event_is_in_its_checksum() -> None:
    parts = ("kept.EU.a", b"body", {"n": 1}, (4, None, None, None))
    others = ("kept.EU.b", b"bodz", {"n": 2}, (5, None, None, None))
    sums = [checksum(*parts), checksum(others[0], *parts[1:]), checksum(parts[0], others[1], *parts[2:])]
    sums += [checksum(*parts[:2], others[2], parts[3]), checksum(*parts[:3], others[3])]

    assert len(set(sums)) == 5

"""No tick of another node counts that its pubend cannot have reached."""

from __future__ import annotations

import pytest

from gapless.core.alarms import AlarmCode
from gapless.core.network.facts import (
    Held,
    Hold,
    OpenRequest,
    Outcome,
    Probe,
    Progress,
    PubendMeta,
    Seen,
    Verdict,
    Want,
)
from gapless.core.network.frames import Answer, Message, ProgressRows
from gapless.core.network.reach import (
    AHEAD_MAX,
    ELECTIONS_MAX,
    ImpossibleTickError,
    blame,
    check_message,
    check_meta,
    check_tick,
    reach_of,
)
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, LAST, OFFSET_BITS, SECOND, tick_at
from gapless.core.wire.messages import TickRun
from gapless.errors import RemoteProtocolError

WALL = 1_800_000_000_000
PRESENT = tick_at(WALL)
P = "p@1"
TIMED = PubendMeta(P, "phb1", stable=PRESENT, reach=PRESENT)
LEAPT = PubendMeta(P, "phb1", reach=PRESENT + 1000 * AHEAD_MAX)
OFFSET = (7 << OFFSET_BITS) + 100
NUMBERED = PubendMeta(P, "phb1", grain=1, reach=OFFSET)
FALSE = 1 << 61


@pytest.mark.parametrize(
    ("meta", "most"),
    [
        pytest.param(TIMED, PRESENT + AHEAD_MAX, id="a-day"),
        pytest.param(PubendMeta(P, "phb1"), PRESENT + AHEAD_MAX, id="a-host-that-says-nothing"),
        pytest.param(LEAPT, LEAPT.reach + AHEAD_MAX, id="a-clock-that-leapt"),
        pytest.param(NUMBERED, OFFSET + (ELECTIONS_MAX << OFFSET_BITS), id="two-elections"),
    ],
)
def test_a_pubend_may_have_come_so_far_and_no_further(meta: PubendMeta, most: int) -> None:
    check_tick(meta, most, WALL)

    assert reach_of(meta, WALL) == most
    with pytest.raises(ImpossibleTickError):
        check_tick(meta, most + 1, WALL)


def test_only_a_log_that_numbers_its_records_ends_at_the_last_tick() -> None:
    check_tick(NUMBERED, LAST, WALL)
    check_tick(PubendMeta(P, "phb1", grain=1), LAST, WALL)

    with pytest.raises(ImpossibleTickError):
        check_tick(TIMED, LAST, WALL)
    with pytest.raises(ImpossibleTickError):
        check_tick(NUMBERED, FOREVER, WALL)


SAID = [
    Knowledge(P, 5, FALSE),
    Knowledge(P, 5, 10, lost=FALSE),
    Want(P, ((1, 2), (FALSE, FALSE + 1)), None, "s", again=False),
    Want(P, ((FALSE, FOREVER),), None, "s", again=True),
    ProgressRows((Progress("s", P, 1, 2), Progress("t", P, 1, FALSE))),
    Hold("s", P, 1, {1: 5, 2: FALSE}),
    Held("s", P, 1, {1: FALSE}),
    Held("s", P, 1, {}, FALSE),
    Probe(P, FALSE),
    Seen(PubendMeta(P, "phb1", stable=FALSE)),
    Seen(TIMED, FALSE),
    Answer(P, Outcome(Verdict.OK, tick=FALSE)),
    Answer(P, Outcome(Verdict.OK, ticks=(TickRun(5, 1, 1), TickRun(PRESENT, AHEAD_MAX, 9)))),
]


@pytest.mark.parametrize("message", SAID, ids=[f"{type(each).__name__}-{number}" for number, each in enumerate(SAID)])
def test_whatever_names_a_tick_is_compared(message: Message) -> None:
    with pytest.raises(ImpossibleTickError) as caught:
        check_message(message, lambda _: TIMED, WALL)

    assert caught.value.pubend == P


@pytest.mark.parametrize(
    "message",
    [
        Knowledge(P, 5, PRESENT + SECOND),
        Want(P, ((1, FOREVER),), None, "s", again=False),
        Hold("s", P, 1, {}),
        Held("s", P, 1, {}),
        Answer(P, Outcome(Verdict.OK)),
        OpenRequest("loader", "i", 1, None, P, principal="x"),
    ],
    ids=["knowledge", "open-want", "hold", "held", "answer", "opening"],
)
def test_what_can_be_passes(message: Message) -> None:
    check_message(message, lambda _: TIMED, WALL)


def test_nothing_is_known_of_an_unknown_pubend() -> None:
    check_message(Probe("x@1", FALSE), lambda _: None, WALL)


@pytest.mark.parametrize(
    "meta",
    [
        PubendMeta(P, "phb1", stable=FALSE, reach=PRESENT),
        PubendMeta(P, "phb1", created=FALSE),
        PubendMeta(P, "phb1", voids=((5, FALSE),)),
        PubendMeta(P, "phb1", forks=((5, FALSE),)),
    ],
)
def test_what_is_said_of_a_pubend_agrees_with_its_reach(meta: PubendMeta) -> None:
    with pytest.raises(ImpossibleTickError):
        check_meta(meta, WALL)


def test_the_operator_is_told_who_and_what() -> None:
    with pytest.raises(ImpossibleTickError) as caught:
        check_tick(TIMED, FALSE, WALL)
    alarm = blame("ib2", caught.value)

    assert (alarm.code, alarm.about) == (AlarmCode.IMPOSSIBLE_TICK, "ib2")
    assert all(part in alarm.text for part in ("ib2", P, str(FALSE), "2037"))
    assert blame("ib2", RemoteProtocolError("nonsense")).code is AlarmCode.NODE_REFUSED
    with pytest.raises(ImpossibleTickError, match="epoch"):
        check_tick(NUMBERED, 90 << OFFSET_BITS, WALL)

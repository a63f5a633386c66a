"""Where clients place openings and batches: every one ends in exactly one Submitted (C9)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import Ending, OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless.core.network.frames import Address, Answer
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.messages import TickRun
from gapless.errors import RemoteProtocolError
from gapless_routing.common.placing import ANSWER_LIMIT, REPEAT, ClientSide, misfit
from unit.gapless_routing.common.placing_world import LIFE, P, World, pub

FAR = 9
"""The life of the router at `far`."""


class Side:
    """The part that asks; the pubend is at `far`."""

    def __init__(self) -> None:
        self.world = World()
        self.entry = ClientSide(self.world, self.world)
        self.entry.on_life("far", FAR)

    def sent(self) -> list[tuple[str, Address]]:
        """Where questions went, and under which address."""
        return [(broker, address) for broker, _, address in self.world.take_messages()]

    def answer(self, number: int, outcome: Outcome, *, life: int = LIFE, theirs: int = FAR, taken: int = 1) -> None:
        """The owner answers."""
        self.entry.on_answer("far", Answer(P, outcome), (life, number, theirs, taken))

    def placed(self) -> list[tuple[object, Verdict]]:
        """What clients are told."""
        return [(one.reply_to, one.outcome.verdict) for one in self.world.take_effects() if isinstance(one, Submitted)]

    def pass_time(self, span: int) -> None:
        """Timers do what they do."""
        self.world.now += span
        for _, number in self.world.timers.take_due(self.world.now):
            self.entry.repeat(int(number))


@pytest.fixture
def side() -> Side:
    return Side()


def ok(sequence: int) -> Outcome:
    return Outcome(Verdict.OK, sequence=sequence, epoch=1)


def test_no_number_is_used_twice_in_a_process(side: Side) -> None:
    """What is late from before everything was forgotten is told by it from what was asked since."""
    side.entry.place(pub(1), "r1", "")
    side.entry.forget()
    side.entry.place(pub(1), "r2", "")
    assert [address[2] for _, address in side.sent()] == [1, 2]

    side.entry = ClientSide(side.world, side.world, 1000)
    side.entry.place(pub(1), "r3", "")
    assert [address[2] for _, address in side.sent()] == [1001]


@pytest.mark.parametrize("known", ["far", "nowhere"])
def test_where_the_pubend_is_not_known_the_node_where_it_was_is_asked(side: Side, known: str) -> None:
    """It may be gone, and nobody else can say so. A node that is not on the map any more cannot, either."""
    side.entry.place(pub(1, pubend="gone@1"), "batch", known)
    request = OpenRequest("another", "i", 1, None, "gone@1", node=known, principal="anonymous")
    side.entry.open(request, "opening")

    asked = [broker for broker, _ in side.sent()]
    refused = [name for name, _ in side.placed()]
    assert (asked, refused) == ((["far"] * 2, []) if known == "far" else ([], ["batch", "opening"]))


def test_a_batch_goes_to_its_pubends_broker_and_its_answer_to_the_client(side: Side) -> None:
    side.entry.place(pub(1), "r1", "")
    assert side.sent() == [("far", (FAR, LIFE, 1, 0, 1))]

    side.answer(1, ok(1))
    side.answer(1, ok(1))
    assert side.placed() == [("r1", Verdict.OK)], "an answer that comes again is no other"


OPENING = OpenRequest("loader", "i", 1, None, P, principal="anonymous")
FALSE = 1 << 62


@pytest.mark.parametrize(
    ("pubend", "outcome"),
    [
        pytest.param("q@1", ok(1), id="another-pubend"),
        pytest.param(P, ok(0), id="an-earlier-event"),
        pytest.param(P, ok(FALSE), id="an-event-that-was-never-sent"),
        pytest.param(P, Outcome(Verdict.OK, sequence=1, ticks=(TickRun(5, 1, 2),)), id="too-many-receipts"),
        pytest.param(P, Outcome(Verdict.RESUME, sequence=FALSE), id="resume-beyond"),
        pytest.param(P, Outcome(Verdict.RETRY, sequence=FALSE), id="retry-beyond"),
    ],
)
def test_an_answer_to_another_batch_is_nonsense_and_its_publisher_is_told(
    side: Side, pubend: str, outcome: Outcome
) -> None:
    """It would leave the publisher waiting for a receipt that nobody will send."""
    side.entry.place(pub(1), "r1", "")

    with pytest.raises(RemoteProtocolError, match="'far' gave an answer that does not fit"):
        side.entry.on_answer("far", Answer(pubend, outcome), (LIFE, 1, FAR, 1))
    (told,) = side.world.take_effects()
    assert isinstance(told, Submitted)
    assert told.outcome.verdict is Verdict.UNCERTAIN
    assert "does not fit" in told.outcome.reason


@pytest.mark.parametrize(
    ("pubend", "outcome"), [("q@1", ok(0)), (P, Outcome(Verdict.OK))], ids=["another-pubend", "no-epoch"]
)
def test_an_answer_that_opens_nothing_is_nonsense(side: Side, pubend: str, outcome: Outcome) -> None:
    side.entry.open(OPENING, "o1")

    with pytest.raises(RemoteProtocolError, match="does not fit"):
        side.entry.on_answer("far", Answer(pubend, outcome), (LIFE, 1, FAR, 1))
    assert side.placed() == [("o1", Verdict.RETRY)]


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        (pub(1), Outcome(Verdict.OK, "logged long ago", 1)),
        (pub(1), Outcome(Verdict.RETRY, "later", 1)),
        (pub(5), Outcome(Verdict.RESUME, "events 1 to 4 are missing", 1)),
        (pub(1), Outcome(Verdict.FENCED)),
        (replace(pub(9), keyed=True), Outcome(Verdict.OK, "logged before", 3)),
        (replace(pub(0), tokens=b"token", events=EventColumns(0, b"", b"")), Outcome(Verdict.OK, sequence=7)),
        (OPENING, ok(9)),
        (replace(OPENING, ending=Ending.LEFT), Outcome(Verdict.OK)),
        (replace(OPENING, keyed=True), Outcome(Verdict.OK)),
        (replace(OPENING, claims=True, epoch=3), Outcome(Verdict.OK, epoch=3)),
        (replace(OPENING, pubend=""), ok(0)),
    ],
)
def test_every_answer_of_a_pubend_fits(message: OpenRequest | Pub, outcome: Outcome) -> None:
    assert misfit(message, Answer(P, outcome)) == ""


def test_who_waits_is_told_that_no_link_leads_there(side: Side) -> None:
    side.entry.place(pub(1), "r1", "")
    side.pass_time(ANSWER_LIMIT)
    (silent,) = side.world.take_effects()
    del side.world.processes["far"]
    side.entry.place(pub(1), "r2", "")
    side.pass_time(ANSWER_LIMIT)
    (parted,) = side.world.take_effects()

    assert isinstance(silent, Submitted)
    assert isinstance(parted, Submitted)
    assert silent.outcome.reason == "node 'far', where the pubend is, does not answer"
    assert parted.outcome.reason == "no link leads to node 'far', where the pubend is"


def test_a_batch_says_which_one_is_to_come_before_it_and_which_are_given_up(side: Side) -> None:
    side.entry.place(pub(1), "r1", "")
    side.entry.place(pub(1, publisher="another"), "s1", "")
    side.entry.place(pub(2), "r2", "")
    assert [address for _, address in side.sent()] == [
        (FAR, LIFE, 1, 0, 1),
        (FAR, LIFE, 2, 0, 2),
        (FAR, LIFE, 3, 1, 1),
    ]

    side.answer(1, ok(1))
    side.pass_time(REPEAT)
    assert [address for _, address in side.sent()] == [(FAR, LIFE, 2, 0, 2), (FAR, LIFE, 3, 0, 3)]


def test_a_question_is_repeated_and_given_up_once(side: Side) -> None:
    side.entry.place(pub(1), "r1", "")
    side.entry.open(OpenRequest("loader", "i", 1, None, P, principal="anonymous"), "o1")
    sent = 0
    for _ in range(0, 2 * ANSWER_LIMIT, REPEAT):
        side.pass_time(REPEAT)
        sent += len(side.sent())

    assert side.placed() == [("r1", Verdict.UNCERTAIN), ("o1", Verdict.RETRY)]
    assert 2 * 3 <= sent <= 2 * 8
    side.answer(1, ok(1))
    assert side.placed() == []


def test_an_opening_is_asked_no_more_once_there_is_a_later_one(side: Side) -> None:
    """It may be of a process that is over: it would fence the one in its place, if it came behind it."""
    side.entry.open(OpenRequest("loader", "i", 1, None, P, principal="anonymous"), "o1")
    side.entry.open(OpenRequest("another", "i", 1, None, P, principal="anonymous"), "p1")
    side.entry.open(OpenRequest("loader", "j", 1, None, P, principal="anonymous"), "o2")

    assert side.placed() == [("o1", Verdict.RETRY)]
    assert [address for _, address in side.sent()][-1] == (FAR, LIFE, 3, 0, 3)
    side.answer(3, ok(0))
    side.pass_time(ANSWER_LIMIT)
    assert side.placed() == [("o2", Verdict.OK), ("p1", Verdict.RETRY)]


def test_a_refusal_ends_what_its_publisher_placed_later(side: Side) -> None:
    for first in (1, 2, 3):
        side.entry.place(pub(first), f"r{first}", "")
    side.entry.place(pub(1, publisher="another"), "s1", "")

    side.answer(2, Outcome(Verdict.RESUME, sequence=1))
    assert side.placed() == [("r2", Verdict.RESUME), ("r3", Verdict.UNCERTAIN)]

    side.sent()
    side.pass_time(REPEAT)
    assert [address[2] for _, address in side.sent()] == [1, 4]


def test_an_opening_goes_where_the_publishers_name_says(side: Side) -> None:
    homes: dict[str, str] = {}
    for name in map(str, range(20)):
        side.entry.open(OpenRequest(name, "i", 1, None, principal="anonymous"), name)
        ((homes[name], _),) = side.sent()
    assert set(homes.values()) == {"far", "here"}

    other = Side()
    for name in map(str, range(20)):
        other.entry.open(OpenRequest(name, "j", 7, "t", principal="anonymous"), name)
        assert [peer for peer, _ in other.sent()] == [homes[name]], "for one name it is one broker"


def test_an_opening_that_a_broker_does_not_take_goes_to_the_next(side: Side) -> None:
    name = next(name for name in map(str, range(20)) if _first_choice(name) == "far")
    side.entry.open(OpenRequest(name, "i", 1, None, principal="anonymous"), "r1")
    side.sent()

    side.answer(1, Outcome(Verdict.ELSEWHERE, "not here"))
    ((broker, address),) = side.sent()
    assert (broker, side.placed()) == ("here", [])

    side.answer(1, Outcome(Verdict.OK))
    assert side.placed() == [], "an answer of the first one, which came again"
    side.entry.on_answer("here", Answer(P, Outcome(Verdict.ELSEWHERE, "no")), (LIFE, address[2], LIFE, 1))
    assert side.placed() == [("r1", Verdict.ELSEWHERE)], "there is no other"


@pytest.mark.parametrize("verdict", [Verdict.REJECTED, Verdict.FENCED, Verdict.RETRY])
def test_any_other_refusal_sends_an_opening_nowhere_else(side: Side, verdict: Verdict) -> None:
    side.entry.open(OpenRequest("0", "i", 1, None, P, principal="anonymous"), "r1")
    side.sent()
    side.answer(1, Outcome(verdict))

    assert (side.sent(), side.placed()) == ([], [("r1", verdict)])


def _first_choice(name: str) -> str:
    side = Side()
    side.entry.open(OpenRequest(name, "i", 1, None, principal="anonymous"), name)
    return side.sent()[0][0]


def test_an_opening_goes_where_the_publisher_was_opened_before(side: Side) -> None:
    for name in map(str, range(10)):
        side.entry.open(OpenRequest(name, "i", 1, None, P, principal="anonymous"), name)

    assert {peer for peer, _ in side.sent()} == {"far"}


def test_a_pubend_of_which_nobody_has_heard(side: Side) -> None:
    side.entry.place(pub(4, pubend="q@1"), "r4", "")

    (placed,) = side.world.take_effects()
    assert isinstance(placed, Submitted)
    assert (placed.outcome.verdict, placed.outcome.sequence) == (Verdict.RETRY, 4)


def test_who_does_not_know_us_any_more_is_asked_again(side: Side) -> None:
    side.entry.place(pub(1), "r1", "")
    side.sent()

    refused = Outcome(Verdict.RETRY)
    side.answer(1, refused, theirs=FAR + 1, taken=0)
    assert side.sent() == [("far", (FAR + 1, LIFE, 1, 0, 1))]
    side.answer(1, refused, theirs=FAR + 1, taken=0)
    assert side.sent() == [], "that was sent to the right one: it will be answered"
    assert side.placed() == []


def test_the_router_of_this_node_is_always_known(side: Side) -> None:
    side.world.owners[P] = "here"
    side.entry.place(pub(1), "r1", "")

    assert side.sent() == [("here", (LIFE, LIFE, 1, 0, 1))]


def test_answers_for_another_life_or_from_another_broker_mean_nothing(side: Side) -> None:
    side.entry.place(pub(1), "r1", "")
    side.answer(1, ok(1), life=LIFE - 1)
    side.entry.on_answer("there", Answer(P, ok(1)), (LIFE, 1, 3, 1))

    assert side.placed() == []


def test_what_was_asked_before_everything_was_forgotten_ends(side: Side) -> None:
    side.entry.place(pub(1), "r1", "")
    side.entry.open(OpenRequest("loader", "i", 1, None, P, principal="anonymous"), "o1")
    side.entry.place(pub(2), "r2", "")

    side.entry.forget()

    assert side.placed() == [("r1", Verdict.UNCERTAIN), ("o1", Verdict.RETRY), ("r2", Verdict.UNCERTAIN)]
    side.pass_time(2 * ANSWER_LIMIT)
    assert side.placed() == []


def test_no_more_than_so_many_questions(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless_routing.common.placing.QUESTIONS_MAX", 2)
    batches: list[Pub] = [pub(first) for first in (1, 2, 3)]
    for batch in batches:
        side.entry.place(batch, batch.first, "")

    assert side.placed() == [(3, Verdict.RETRY)]

"""Publishing from any node: openings and batches on their way through the tree, and lives of processes (C9)."""

from __future__ import annotations

from gapless.core.network.facts import (
    Opened,
    OpenRequest,
    Outcome,
    Pub,
    PubendMeta,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
)
from gapless.core.network.frames import Answer
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless_routing.knowledge.state import LIFE_BITS, new_life
from unit.gapless_routing.knowledge.net import CHAIN, DIAMOND, PHB, SHB, Net, P, network_map, subscribed

OPENING = OpenRequest("loader", "i", 1, "flights", principal="anonymous")
OK = Outcome(Verdict.OK, sequence=1)
TWO = network_map({"P": {"p": PHB}, "Q": {"q": PHB}, "M": {"i": ()}, "S": {"s": SHB}}, "p-i", "q-i", "i-s")


def batch(first: int = 1) -> Pub:
    event = encode_event("flights", {}, None, b"body")
    return Pub("loader", 1, first, EventColumns.of([event], [4]), P, principal="anonymous")


def test_an_opening_at_a_node_without_the_pubend_reaches_it_and_its_answer_comes_back() -> None:
    net = subscribed()
    net.tell("s", SubmitOpen(OPENING, "reply"))
    (opening,) = net.take(SubmitOpen, "p")
    assert opening.request == OPENING

    net.tell("p", Submitted(opening.reply_to, P, OK))
    assert net.take(Submitted, "s") == [Submitted("reply", P, OK)]


def test_a_batch_goes_to_where_its_pubend_is_as_the_bytes_that_came() -> None:
    net = subscribed(DIAMOND)
    net.tell("s", Submit(batch(), "reply"))
    (submit,) = net.take(Submit, "p")
    assert submit.pub.events.blob == batch().events.blob

    net.tell("p", Submitted(submit.reply_to, P, OK))
    assert net.take(Submitted, "s") == [Submitted("reply", P, OK)]


def test_a_client_of_the_pubends_own_node_needs_no_link() -> None:
    net = Net(CHAIN, cut=("p-i",))
    net.open()
    net.tell("p", Submit(batch(), "reply"))

    assert [submit.pub.first for submit in net.take(Submit, "p")] == [1]


def test_a_lost_question_is_repeated_and_submitted_once() -> None:
    net = subscribed()
    losses = iter([True])
    net.lost = lambda sent: isinstance(sent.message, Pub) and next(losses, False)
    net.tell("s", Submit(batch(), "reply"))
    assert net.take(Submit, "p") == []

    net.pass_time(2_000_000_000)
    assert len(net.take(Submit, "p")) == 1


def test_a_question_that_nobody_answers_ends_uncertain() -> None:
    net = subscribed()
    net.lost = lambda sent: isinstance(sent.message, (Pub, Answer))
    net.tell("s", Submit(batch(), "reply"))
    net.pass_time(5_000_000_000)

    (submitted,) = net.take(Submitted, "s")
    assert submitted.outcome.verdict is Verdict.UNCERTAIN


def test_a_name_is_placed_where_a_pubend_carries_its_topic() -> None:
    net = Net(TWO)
    net.tell("p", Opened(PubendMeta("p@1", "p", ("trains",)), {}))
    net.tell("q", Opened(PubendMeta("q@1", "q", ("flights",)), {}))
    for number in range(8):
        net.tell("s", SubmitOpen(OpenRequest(f"loader-{number}", "i", 1, "flights", principal="anonymous"), number))

    assert (len(net.take(SubmitOpen, "p")), len(net.take(SubmitOpen, "q"))) == (0, 8)


def test_what_a_process_that_is_over_had_asked_is_not_submitted() -> None:
    net = subscribed()
    net.lost = lambda sent: isinstance(sent.message, Pub)
    net.tell("s", Submit(batch(), "old"))
    late = next(sent for sent in net.sent if isinstance(sent.message, Pub) and sent.to == "i")
    net.lost = lambda _: False
    net.now += 1_000_000_000
    net.start("s")
    net.connect("s", "i")
    net.flow()
    net.pass_time(6_000_000_000)
    net.tell("s", Submit(batch(), "new"))
    assert len(net.take(Submit, "p")) == 1

    net.arrive("s", "i", late.message, late.address)
    assert net.take(Submit, "p") == []


def test_a_life_has_a_higher_name_than_the_one_that_it_surpasses() -> None:
    first = new_life("s", 1, 0)
    second = new_life("s", 2, first)

    assert second >> LIFE_BITS > first >> LIFE_BITS
    assert new_life("s", 1, 5) != new_life("s", 2, 5)
    assert new_life("s", 1, 5) != new_life("t", 1, 5)


def test_a_process_whose_clock_was_set_back_is_told_and_goes_on() -> None:
    net = subscribed()
    net.tell("s", Submit(batch(), "before"))
    (before,) = net.take(Submit, "p")
    net.tell("p", Submitted(before.reply_to, P, OK))
    far = net.now
    net.now = 1
    net.start("s")
    net.now = far
    net.connect("s", "i")
    net.flow()
    net.pass_time(6_000_000_000)
    net.forget()
    net.tell("s", Submit(batch(2), "after"))
    net.pass_time(2_000_000_000)

    (after,) = net.take(Submit, "p")
    net.tell("p", Submitted(after.reply_to, P, OK))
    assert net.take(Submitted, "s") == [Submitted("after", P, OK)]

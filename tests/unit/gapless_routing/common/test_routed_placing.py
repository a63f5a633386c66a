"""Publishing from any node of the tree: the way, and lives (protocol: ways-of-publishes; C9)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import (
    Hangup,
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
from gapless.core.stream.ticks import FOREVER
from gapless_routing.common.placing import ANSWER_LIMIT, REPEAT
from unit.gapless_routing.knowledge.net import CHAIN, DIAMOND, PHB, SECOND, SHB, Net, P, network_map

OK = Outcome(Verdict.OK, sequence=1, epoch=1)
TWO_PHBS = network_map({"P": {"p": PHB}, "M": {"i": ()}, "Q": {"q": PHB}, "S": {"s": SHB}}, "p-i", "q-i", "s-i")
LATER = 4 << 60
"""A life that no clock here gives."""


def pub(first: int, publisher: str = "loader") -> Pub:
    event = encode_event("a", {"n": first}, None, b"")
    return Pub(publisher, 1, first, EventColumns.of([event], [0]), P, b"", principal="anonymous")


def opening(publisher: str = "loader", pubend: str = "", topic: str | None = None) -> OpenRequest:
    return OpenRequest(publisher, "i", 1, topic, pubend, principal="anonymous")


def opened(network: Any = CHAIN, **meta: Any) -> Net:
    """A network in which everybody knows the pubend at `p`."""
    net = Net(network)
    net.open(**meta)
    net.forget()
    return net


def submitted(net: Net, name: str = "p") -> list[int]:
    """The sequences of the batches that a pubend's host got since the last call; each is answered with OK."""
    submits = net.take(Submit, name)
    for submit in submits:
        net.tell(name, Submitted(submit.reply_to, P, Outcome(Verdict.OK, sequence=submit.pub.first)))
    return [submit.pub.first for submit in submits]


def answers(net: Net, name: str = "s") -> list[tuple[object, Verdict]]:
    """What a broker's clients were told since the last call."""
    return [(one.reply_to, one.outcome.verdict) for one in net.take(Submitted, name)]


def renewed(net: Net, name: str, life: int, *, keeps: bool = False) -> None:
    """A broker's process begins anew at this time, with a new volume unless it `keeps` it; its links are up again."""
    if not keeps:
        net.saved[name].clear()
    peers = [peer for at, peer in list(net.links) if at == name]
    for peer in peers:
        net.cut(name, peer)
    now, net.now = net.now, life
    net.start(name)
    net.now = now
    for peer in peers:
        net.connect(name, peer)
    net.flow()
    net.forget()


# ---------------------------------------------------------------------------------------- the way


def test_a_batch_travels_to_the_pubend_and_its_answer_back() -> None:
    net = opened()
    net.tell("s", Submit(pub(1), "r1"))

    assert submitted(net) == [1]
    assert answers(net) == [("r1", Verdict.OK)]
    assert net.ways(Pub) == [("s", "i"), ("i", "p")]
    assert net.ways(Answer) == [("p", "i"), ("i", "s")]


def test_at_the_pubends_own_broker_nothing_travels() -> None:
    net = opened()
    net.tell("p", Submit(pub(1), "r1"))

    assert submitted(net) == [1]
    assert answers(net, "p") == [("r1", Verdict.OK)]
    assert net.sent == []


def test_a_broker_without_a_role_takes_publishers_too() -> None:
    net = opened(DIAMOND)
    net.tell("j", SubmitOpen(opening(), "o1"))
    (asked,) = net.take(SubmitOpen, "p")
    net.tell("p", Submitted(asked.reply_to, P, Outcome(Verdict.OK, epoch=1)))

    assert answers(net, "j") == [("o1", Verdict.OK)]


def test_the_way_takes_a_step_sideways_where_it_must() -> None:
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.open()
    net.pass_time(2 * SECOND)
    net.forget()
    net.tell("s", Submit(pub(1), "r1"))

    assert submitted(net) == [1]
    assert answers(net) == [("r1", Verdict.OK)]
    assert net.ways(Pub) == [("s", "i"), ("i", "j"), ("j", "p")]
    assert net.ways(Answer) == [("p", "j"), ("j", "i"), ("i", "s")]


def test_a_batch_that_was_lost_is_sent_again_and_submitted_once() -> None:
    net = opened()
    net.lost = lambda sent: sent.to == "p"
    net.tell("s", Submit(pub(1), "r1"))
    net.lost = lambda sent: isinstance(sent.message, Answer)
    net.pass_time(REPEAT)
    assert submitted(net) == [1]
    net.lost = lambda _: False
    net.pass_time(2 * REPEAT)

    assert submitted(net) == []
    assert answers(net) == [("r1", Verdict.OK)]


def test_a_batch_that_nobody_answers_is_uncertain_in_the_end() -> None:
    net = opened()
    net.cut("p", "i")
    net.tell("s", Submit(pub(1), "r1"), SubmitOpen(opening(pubend=P), "o1"))
    net.pass_time(ANSWER_LIMIT)

    assert answers(net) == [("r1", Verdict.UNCERTAIN), ("o1", Verdict.RETRY)]


def test_a_message_of_a_broker_that_is_not_on_the_map_is_dropped() -> None:
    """It could not be answered."""
    net = opened()
    life = net.life("p")
    net.arrive("i", "p", pub(1), ("p", "nobody", life, 1, 1, 0, 1))
    net.arrive("i", "p", pub(1), ("nobody", "s", life, 1, 1, 0, 1))

    assert submitted(net) == []
    assert net.sent == []


# ------------------------------------------------------------------------------------------ where


def homes(net: Net, topic: str | None = None) -> dict[str, str]:
    """Where publishers of twenty names are opened."""
    found: dict[str, str] = {}
    for name in map(str, range(20)):
        net.tell("s", SubmitOpen(opening(name, topic=topic), name))
        for host in "pq":
            found.update((asked.request.publisher, host) for asked in net.take(SubmitOpen, host))
    return found


def with_two_phbs(p: str = "#", q: str = "#") -> Net:
    net = Net(TWO_PHBS)
    for name, topics in (("p", p), ("q", q)):
        net.tell(name, Opened(PubendMeta(f"{name}@1", name, (topics,), places=1), {}))
    net.tell("s")
    return net


def test_a_name_that_is_nowhere_yet_goes_where_it_always_goes() -> None:
    first, again = homes(with_two_phbs()), homes(with_two_phbs())

    assert set(first.values()) == {"p", "q"}
    assert first == again


def test_a_name_goes_only_where_its_topic_is_carried() -> None:
    net = with_two_phbs(p="orders.#", q="flights.#")

    assert set(homes(net, "orders.new").values()) == {"p"}
    assert set(homes(net, "flights.late").values()) == {"q"}
    assert set(homes(net, "neither").values()) == {"p", "q"}, "the PHB refuses it, and says why"


@pytest.mark.parametrize(
    "meta",
    [{"publishers": ("loader", "job-*"), "places": 1}, {"read_only": True, "places": 0}],
    ids=["named", "read-only"],
)
def test_a_name_goes_only_where_it_is_taken(meta: dict[str, Any]) -> None:
    net = with_two_phbs()
    net.tell("q", Opened(PubendMeta("q@1", "q", **meta), {}))

    assert set(homes(net).values()) == {"p"}
    is_named = "publishers" in meta
    net.tell("s", *(SubmitOpen(opening(f"job-{number}"), f"job-{number}") for number in range(20)))
    assert bool(net.take(SubmitOpen, "q")) is is_named


def test_a_phb_of_which_something_may_be_unknown_is_passed_over_for_nobody() -> None:
    """Found by the simulator (1217): the name was opened at the next PHB, and what it had logged was logged again."""
    everywhere = homes(with_two_phbs())
    net = with_two_phbs()
    second = PubendMeta("q-2@1", "q", publishers=("loader",), places=2)
    net.tell("q", Opened(PubendMeta("q@1", "q", places=2), {}), Opened(second, {}))
    missing = Net(TWO_PHBS)
    missing.tell("p", Opened(PubendMeta("p@1", "p", places=1), {}))
    missing.tell("q", Opened(second, {}))

    assert homes(net) == everywhere
    assert homes(missing) == everywhere, "the notice of the other one was lost, or comes later"

    missing.tell("q", Opened(PubendMeta("q@1", "q", ("flights.#",), places=2), {}))
    assert set(homes(missing, "orders.new").values()) == {"p"}


def test_where_a_phb_does_not_say_how_many_pubends_it_has_it_is_asked() -> None:
    net = with_two_phbs()
    net.tell("q", Opened(PubendMeta("q@1", "q", ("flights.#",)), {}))

    assert homes(net, "orders.new") == homes(with_two_phbs())


def test_what_is_known_of_an_earlier_life_does_not_count() -> None:
    """Its volume may be lost: then there are others in its place."""
    net = Net(TWO_PHBS)
    net.tell("p", Opened(PubendMeta("p@1", "p", places=1), {}))
    for name in ("q", "q-2"):
        net.tell("q", Opened(PubendMeta(f"{name}@1", "q", publishers=("loader",), places=2), {}))
    assert set(homes(net).values()) == {"p"}

    renewed(net, "q", net.now + SECOND)
    net.tell("q", Opened(PubendMeta("q@2", "q", publishers=("loader",), places=2), {}))
    assert homes(net) == homes(with_two_phbs())


def test_all_logs_of_a_topic_are_one_place() -> None:
    """How many there are is known only once they are found; they take the same publishers."""
    net = Net(TWO_PHBS)
    net.tell("p", Opened(PubendMeta("p@1", "p", places=1), {}))
    log = PubendMeta("k.0@1", "q", ("k",), grain=1, places=2)
    net.tell("q", Opened(log, {}), Opened(replace(log, pubend="k.1@1"), {}))
    assert homes(net, "orders.new") == homes(with_two_phbs()), "another topic's log is not found yet"

    net.tell("q", Opened(PubendMeta("j.0@1", "q", ("j",), grain=1, places=2), {}))
    assert set(homes(net, "orders.new").values()) == {"p"}


def test_a_name_that_a_pubends_broker_does_not_take_goes_to_the_next() -> None:
    net = with_two_phbs()
    first = homes(net)["7"]
    second = "q" if first == "p" else "p"
    net.tell("s", SubmitOpen(opening("7"), "again"))
    (asked,) = net.take(SubmitOpen, first)
    net.tell(first, Submitted(asked.reply_to, "", Outcome(Verdict.ELSEWHERE, "not that name")))

    (asked,) = net.take(SubmitOpen, second)
    net.tell(second, Submitted(asked.reply_to, f"{second}@1", OK))
    assert ("again", Verdict.OK) in answers(net)


def test_who_was_open_somewhere_is_opened_there_again() -> None:
    net = with_two_phbs()
    for name in map(str, range(10)):
        net.tell("s", SubmitOpen(opening(name, "q@1"), name))

    assert net.take(SubmitOpen, "p") == []
    assert len(net.take(SubmitOpen, "q")) == 10


# ------------------------------------------------------------------------------------------ lives


def test_nothing_of_a_life_that_is_over_is_taken() -> None:
    net = opened()
    net.tell("s", Submit(pub(1), "r1"))
    assert submitted(net) == [1]
    old = next(one for one in net.sent if isinstance(one.message, Pub) and one.to == "p")
    renewed(net, "s", net.now + 1)
    net.pass_time(6 * SECOND)
    net.tell("s", Submit(pub(2), "r2"))
    assert submitted(net) == [2]

    net.arrive("i", "p", old.message, old.address)
    assert submitted(net) == [], "it was still on its way"


def test_a_process_whose_clock_was_set_back_is_told_and_goes_on() -> None:
    net = opened()
    net.tell("s", Submit(pub(1), "r1"))
    assert submitted(net) == [1]
    before = net.life("s")
    renewed(net, "s", 1)
    net.pass_time(6 * SECOND)
    assert net.life("s") < before

    net.tell("s", Submit(pub(2), "r2"))
    assert submitted(net) == [2]
    assert answers(net) == [("r2", Verdict.OK)]
    assert net.life("s") > before


def test_a_process_whose_clock_was_set_back_surpasses_what_it_had_saved() -> None:
    """Found by the simulator (5017744): an opening of the life before, not seen yet, came behind one of the next."""
    net = opened()
    net.lost = lambda sent: sent.to == "p" and isinstance(sent.message, Pub)
    net.tell("s", Submit(pub(1), "r1"))
    old = next(one for one in net.sent if isinstance(one.message, Pub))
    net.lost = lambda _: False
    renewed(net, "s", 1, keeps=True)
    net.pass_time(6 * SECOND)
    net.tell("s", Submit(pub(2), "r2"))
    assert submitted(net) == [2]

    net.arrive("i", "p", old.message, old.address)
    assert submitted(net) == [], "it was still on its way"


def test_nothing_is_asked_before_the_life_is_durable() -> None:
    net = opened()
    net.syncs = False
    renewed(net, "s", net.now + 1)
    net.pass_time(SECOND)
    net.tell("s", Submit(pub(1), "r1"))
    assert (submitted(net), answers(net)) == ([], [])

    net.sync()

    assert submitted(net) == [1]
    assert answers(net) == [("r1", Verdict.OK)]


def test_an_answer_to_another_life_does_not_raise_this_one() -> None:
    net = opened()
    life = net.life("s")
    net.arrive("i", "s", Answer(P, OK), ("s", "p", life - 1, 1, 5, LATER))

    assert net.life("s") == life


def test_a_pubends_broker_that_takes_a_higher_life_is_found_again() -> None:
    """The pubend's own broker was set back, and learns of it from another PHB: who places here has to name its life."""
    net = opened()
    life = net.life("p")
    net.arrive("i", "p", Answer(P, OK), ("p", "s", life, 1, 5, life + 7))
    assert net.life("p") > life + 7

    net.tell("s", Submit(pub(1), "r1"))
    assert submitted(net) == [1]
    assert answers(net) == [("r1", Verdict.OK)]

    net.pass_time(6 * SECOND)
    net.forget()
    net.tell("s", Submit(pub(2), "r2"))
    assert submitted(net) == [2]
    assert net.ways(Pub) == [("s", "i"), ("i", "p")], "notices name the life that it has now"


def test_after_the_pubends_broker_began_anew_a_batch_is_asked_again_of_its_new_life() -> None:
    net = opened()
    renewed(net, "p", net.now + 1)
    net.tell("p", Opened(PubendMeta(P, "p"), {}))
    net.tell("s", Submit(pub(1), "r1"))

    assert submitted(net) == [1]
    assert answers(net) == [("r1", Verdict.OK)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_batch_that_its_client_gave_up_is_submitted_no_more(number: int) -> None:
    net = opened()
    net.lost = lambda sent: sent.to == "p"
    net.tell("s", Submit(pub(1), "r1"), Submit(pub(2), "r2"))
    net.pass_time(ANSWER_LIMIT)
    late = [one for one in net.sent if isinstance(one.message, Pub) and one.to == "p"]
    net.lost = lambda _: False
    net.pass_time(6 * SECOND)
    net.tell("s", Submit(pub(1), "r3"))
    assert submitted(net) == [1]

    found = next(one for one in late if one.message.first == number)  # type: ignore[union-attr]
    net.arrive("i", "p", found.message, found.address)
    assert submitted(net) == []


@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_an_answer_to_the_process_before_ends_no_question_of_the_one_in_its_place(seed: int) -> None:
    """Both number their questions from the same moment on: each machine's clock begins anew."""
    net = opened()
    net.tell("s", Submit(pub(1), "old"))
    (old,) = net.take(Submit, "p")
    net._seed = seed
    renewed(net, "s", 10 * SECOND)
    net.pass_time(6 * SECOND)
    net.tell("s", Submit(pub(2), "new"))
    net.pass_time(SECOND)
    (new,) = net.take(Submit, "p")

    net.tell("p", Submitted(old.reply_to, P, Outcome(Verdict.OK, sequence=1)))
    net.pass_time(SECOND)
    assert net.take(Submitted, "s") == []
    net.tell("p", Submitted(new.reply_to, P, Outcome(Verdict.OK, sequence=2)))
    assert [one.outcome.sequence for one in net.take(Submitted, "s")] == [2]


def test_an_answer_to_one_broker_of_a_cell_finds_it_over_a_mate() -> None:
    """`i` has no link to the PHB; of those that have one, only `j` has one to `i`."""
    cells: dict[str, dict[str, tuple[str, ...]]]
    cells = {"P": {"p": PHB}, "M": {"i": (), "j": (), "k": ()}, "S": {"s": SHB}}
    links = ["p-i", "p-j", "p-k", "i-j", "i-k", "j-k", "i-s", "j-s", "k-s"]
    net = opened(network_map(cells, *links))
    for one, other in (("p", "i"), ("i", "k"), ("i", "s"), ("j", "k")):
        net.cut(one, other)
    net.pass_time(2 * SECOND)
    verdicts: list[Verdict] = []
    while Verdict.OK not in verdicts and len(verdicts) < 10:  # a client asks again when it was put off
        net.tell("i", SubmitOpen(opening(), len(verdicts)))
        for _ in range(8):
            for submit in net.take(SubmitOpen, "p"):
                net.tell("p", Submitted(submit.reply_to, P, OK))
            net.pass_time(SECOND // 2)
        verdicts += [verdict for _, verdict in answers(net, "i")]

    assert verdicts[-1] is Verdict.OK


# ------------------------------------------------------------------------------------------ nonsense


def test_an_answer_that_does_not_fit_ends_the_link_it_came_on_and_its_client_is_told() -> None:
    net = opened()
    net.tell("s", Submit(pub(1), "r1"))
    (asked,) = net.take(Submit, "p")
    net.tell("p", Submitted(asked.reply_to, P, Outcome(Verdict.OK, sequence=9)))

    (told,) = net.take(Submitted, "s")
    assert told.outcome.verdict is Verdict.UNCERTAIN
    assert "does not fit" in told.outcome.reason
    assert net.take(Hangup, "s") == [Hangup(net.links["s", "i"])]
    assert [(alarm.code, alarm.about) for alarm in net.take(Alarm, "s")] == [(AlarmCode.NODE_REFUSED, "i")]


def test_no_life_is_beyond_what_a_frame_can_say() -> None:
    """A node that was told of the last life that there can be goes on, instead of failing at what it cannot write."""
    net = opened()
    net.tell("s", Submit(pub(1), "r1"))
    (sent,) = [one for one in net.sent if isinstance(one.message, Pub) and one.to == "p"]
    to, source, _, life, number, *_ = sent.address
    answer = Answer(P, Outcome(Verdict.RETRY, "a later process of this broker was seen"))
    net.arrive("i", "s", answer, (source, to, life, number, net.life("p"), FOREVER))

    assert net.life("s") == FOREVER
    assert not net.take(Alarm, "s")
    net.arrive("i", "s", answer, (source, to, FOREVER, number, 1, 1 << 63))
    assert net.take(Hangup, "s")

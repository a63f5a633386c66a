"""A subscription is read by ranges at its home, and nothing is created beside it (protocol: ranges, roaming)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.wire import messages as m
from unit.gapless_shb.core.harness import PUBEND
from unit.gapless_shb.core.roaming.harness import CLIENT, HOME, OTHER, Node, Pair, Token, begins

BY_NAME = m.Target("s")


def attach(token: Token | None = None) -> m.Attach:
    given = token.answer if token is not None else None
    return m.Attach(
        900,
        "s",
        ("#",),
        "",
        m.StartAt.TOKEN if token is not None else m.StartAt.EARLIEST,
        0,
        None if token is None else [m.Position(PUBEND, token.tick)],
        0 if given is None else given.sid,
        0 if given is None else given.generation,
        b"" if given is None else given.seal,
        "" if given is None else given.home,
    )


def requests(target: m.Target) -> list[Any]:
    """All that names a subscription which exists."""
    return [
        m.AskHeads(900, target, None, 0),
        m.AskBound(900, target, [], 5, None),
        m.AskEarliest(900, target),
        m.AcknowledgeDurably(900, target, b"", []),
        m.TakeLease(900, target, "job", m.InUse.ERROR),
        m.ReadRange(900, target, PUBEND, 0, 1, 10, 1000),
    ]


def asked(pair: Pair, node: Node, request: Any) -> object:
    """What a client is answered."""
    session = pair.session("reader")
    node.feed(request, session)
    pair.settle(1000)
    answers = [each for each in node.messages.get(session.number, []) if hasattr(each, "request")]
    return answers[-1] if answers else None


def refused(answer: object) -> m.RequestFailed:
    assert isinstance(answer, m.RequestFailed), answer
    return answer


def kept(pair: Pair) -> list[str]:
    """The nodes that keep a subscription `s`."""
    nodes = {HOME: pair.home, OTHER: pair.other}
    return [name for name, node in nodes.items() if node.hosting.registry.find(CLIENT, "s") is not None]


@pytest.mark.parametrize("exists", [True, False])
def test_attaching_elsewhere_creates_nothing_and_names_the_home(exists: bool) -> None:
    pair = Pair()
    if exists:
        assert isinstance(asked(pair, pair.home, attach()), m.AttachedTo)

    failed = refused(asked(pair, pair.other, attach()))

    assert (failed.code, failed.node) == (m.Code.CONFIGURATION, HOME)
    assert HOME in failed.reason
    assert kept(pair) == [HOME] * exists


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("kind", range(6))
def test_all_that_names_it_elsewhere_names_the_home(exists: bool, kind: int) -> None:
    pair = Pair()
    if exists:
        asked(pair, pair.home, attach())

    failed = refused(asked(pair, pair.other, requests(BY_NAME)[kind]))

    assert (failed.code, failed.node) == (m.Code.CONFIGURATION, HOME)


@pytest.mark.parametrize("kind", range(6))
def test_by_its_token_too(kind: int) -> None:
    pair = Pair()
    answer = asked(pair, pair.home, attach())
    assert isinstance(answer, m.AttachedTo)

    target = m.Target("", answer.sid, answer.generation, answer.home)
    failed = refused(asked(pair, pair.other, requests(target)[kind]))

    assert (failed.code, failed.node) == (m.Code.CONFIGURATION, HOME)


@pytest.mark.parametrize("kind", range(6))
def test_of_an_shb_that_the_network_has_no_more_it_is_gone(kind: int) -> None:
    pair = Pair()
    target = m.Target("", 7, 1, "shb9@disk")

    assert refused(asked(pair, pair.other, requests(target)[kind])).code is m.Code.NOT_FOUND


def test_a_name_that_an_shb_has_is_read_there_wherever_its_home_would_be() -> None:
    """Where a network has grown, names stay where they are; and so do those that were made twice once."""
    pair = Pair()
    grown_from = pair.other
    grown_from.roams(on=False)
    assert isinstance(asked(pair, grown_from, attach()), m.AttachedTo)
    grown_from.roams(on=True)

    assert isinstance(asked(pair, grown_from, attach()), m.AttachedTo)
    assert isinstance(asked(pair, grown_from, m.AskHeads(900, BY_NAME, None, 0)), m.Ticks)
    assert kept(pair) == [OTHER]


def test_the_shb_that_a_token_names_is_asked_before_its_name_is_created_elsewhere() -> None:
    pair = Pair()
    pair.other.roams(on=False)
    consumer = pair.come(pair.other, "first", wait=500)
    (last,) = pair.publish(1)
    token = Token(pair.attached(pair.other, consumer), last)
    pair.leave(pair.other, consumer)
    pair.other.roams(on=True)

    failed = refused(asked(pair, pair.home, attach(token)))
    assert (failed.code, failed.node) == (m.Code.CONFIGURATION, OTHER)
    assert kept(pair) == [OTHER]

    pair.other.feed(m.Unsubscribe(901, "s", CLIENT), pair.session("operator"))
    pair.settle(500)
    made = asked(pair, pair.home, attach(token))
    assert isinstance(made, m.AttachedTo)
    assert made.positions == [m.Position(PUBEND, last)]
    assert kept(pair) == [HOME]


def test_while_that_shb_is_silent_nothing_is_created() -> None:
    pair = Pair()
    consumer = pair.come(pair.home, "first", wait=500)
    token = Token(pair.attached(pair.home, consumer), begins(pair.attached(pair.home, consumer)))
    strange = m.Subscribed(0, 7, 1, b"", created=False, positions=[], home=f"{OTHER}@of-{OTHER}")
    pair.home.feed(m.Unsubscribe(901, "s", CLIENT), pair.session("operator"))
    pair.settle(500)
    pair.cut = True

    session = pair.session("reader")
    pair.home.feed(attach(Token(strange, token.tick)), session)
    pair.settle(5000)

    (failed,) = pair.got(pair.home, session, m.RequestFailed)
    assert refused(failed).code is m.Code.RETRY
    assert kept(pair) == []


def test_an_attachment_beside_does_not_make_a_consumer_skip_what_it_is_owed() -> None:
    pair = Pair()
    first = pair.come(pair.home, "one")
    pair.leave(pair.home, first)
    events = pair.publish(3)

    asked(pair, pair.other, attach())
    consumer = pair.come(pair.other, "two", wait=2000)

    assert pair.ticks(pair.other, consumer) == events


def test_each_of_two_that_have_one_name_is_ended_where_it_is() -> None:
    """An earlier version could make a second one beside the first: see `gapless doctor`."""
    pair = Pair()
    asked(pair, pair.home, attach())
    pair.other.roams(on=False)
    asked(pair, pair.other, attach())
    pair.other.roams(on=True)
    assert kept(pair) == [HOME, OTHER]
    for node in (pair.home, pair.other):
        listed = asked(pair, node, m.ListSubscriptions(904))
        assert isinstance(listed, m.SubscriptionList)
        assert [(row.client_id, row.name, row.roams) for row in listed.rows] == [(CLIENT, "s", True)]

    assert asked(pair, pair.other, m.Unsubscribe(902, "s", CLIENT)) == m.Done(902)
    assert kept(pair) == [HOME]
    assert asked(pair, pair.other, m.Unsubscribe(903, "s", CLIENT)) == m.Done(903)
    assert kept(pair) == []


def test_what_a_job_makes_for_itself_is_kept_where_it_is_made_and_ended_from_anywhere() -> None:
    """As Spark does for a query without a subscription: its name is its own, so there is nothing beside it."""
    pair = Pair()
    name = "~spark-1"
    made = asked(pair, pair.other, replace(attach(), name=name))
    assert isinstance(made, m.AttachedTo)
    assert made.home == pair.other.shb

    by_name, by_token = m.Target(name), m.Target("", made.sid, made.generation, made.home)
    for target in (by_name, by_token):
        assert isinstance(asked(pair, pair.other, m.AskHeads(900, target, None, 0)), m.Ticks)
    assert refused(asked(pair, pair.home, m.AskHeads(900, by_token, None, 0))).node == OTHER
    listed = asked(pair, pair.other, m.ListSubscriptions(904))
    assert isinstance(listed, m.SubscriptionList)
    assert [row.roams for row in listed.rows] == [False]

    assert asked(pair, pair.home, m.Unsubscribe(905, name, CLIENT)) == m.Done(905)
    assert pair.other.hosting.registry.find(CLIENT, name) is None
    assert refused(asked(pair, pair.home, m.Unsubscribe(906, name, CLIENT))).code is m.Code.NOT_FOUND


def test_it_begins_with_a_token_of_another_one() -> None:
    pair = Pair()
    planned = asked(pair, pair.home, replace(attach(), name="~spark-planning"))
    assert isinstance(planned, m.AttachedTo)
    at = planned.positions[0].tick

    of_a_task = replace(attach(Token(strange(planned), at)), name="~spark-task")
    made = asked(pair, pair.other, of_a_task)

    assert isinstance(made, m.AttachedTo), made
    assert (made.home, made.positions) == (pair.other.shb, [m.Position(PUBEND, at)])


def strange(planned: m.AttachedTo) -> m.Subscribed:
    """The same in the form that a token is made of here."""
    return m.Subscribed(
        0, planned.sid, planned.generation, planned.seal, created=False, positions=[], home=planned.home
    )

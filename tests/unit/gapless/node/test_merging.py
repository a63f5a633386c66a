"""What several roles answer is one answer to the client."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ports import ClientSession, SessionEnded, Tell
from gapless.core.wire.messages import Code, ListedPubend, ListPubends, PubendList, RequestFailed, Retire, Retired
from gapless.node.dispatch import MergedRequests

SESSION = ClientSession(7, "client", "instance", "somebody")


class Asked:
    """A request that was put to two roles."""

    def __init__(self, message: Any) -> None:
        self.merged = MergedRequests()
        self.heard: list[str] = []
        handlers = {
            source: lambda _session, _message, _now, _wall, name=name: self.heard.append(name)
            for source, name in ((0, "phb"), (2, "orders"))
        }
        self.merged.handler(type(message), handlers)(SESSION, message, 0, 0)

    def answer(self, source: int, message: Any) -> Any:
        """What the client is told then."""
        told = self.merged.answer(Tell(SESSION.number, message), source)
        return told and told.message


def listing(pubend: str) -> PubendList:
    return PubendList(3, [ListedPubend(pubend, ("#",), 0, 0, 0, 0, 0, 0, 0)])


def failed(reason: str) -> RequestFailed:
    return RequestFailed(3, Code.CONFIGURATION, reason)


def test_pubends_are_listed_when_all_have_answered_in_the_order_of_the_roles() -> None:
    asked = Asked(ListPubends(3))

    assert asked.answer(2, listing("orders@1")) is None
    answer = asked.answer(0, listing("default@1"))

    assert asked.heard == ["phb", "orders"]
    assert [row.pubend for row in answer.rows] == ["default@1", "orders@1"]


def test_no_list_is_short_because_one_could_not_answer() -> None:
    asked = Asked(ListPubends(3))
    asked.answer(0, listing("default@1"))

    assert asked.answer(2, failed("not now")) == failed("not now")


@pytest.mark.parametrize(
    ("answers", "merged"),
    [
        ((Retired(3, "a@1", ["p"], False), Retired(3, "a@1", ["q"], True)), Retired(3, "a@1", ["p", "q"], True)),
        ((failed("unknown"), Retired(3, "a@1", ["q"], False)), Retired(3, "a@1", ["q"], False)),
        ((failed("unknown here"), failed("unknown there")), failed("unknown here")),
        (
            (Retired(3, "a@1", [], False), Retired(3, "a@2", ["q"], False)),
            failed("several SHBs are called so, name one of them in full: a@1, a@2"),
        ),
    ],
    ids=["both", "one", "none", "two of one name"],
)
def test_an_shb_is_retired_by_all_who_know_it(answers: tuple[Any, Any], merged: Any) -> None:
    asked = Asked(Retire(3, "a"))

    assert asked.answer(0, answers[0]) is None
    assert asked.answer(2, answers[1]) == merged


def test_what_else_a_role_says_goes_its_way() -> None:
    asked = Asked(ListPubends(3))
    other = PubendList(4, [])

    assert asked.answer(0, other) is other
    assert asked.answer(1, listing("default@1")) == listing("default@1")


def test_of_a_session_that_is_over_nothing_is_kept() -> None:
    asked = Asked(ListPubends(3))
    asked.merged.on_session_ended(SessionEnded(SESSION), 0, 0)

    assert asked.answer(0, listing("default@1")) == listing("default@1")

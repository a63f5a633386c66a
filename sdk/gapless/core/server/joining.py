"""How the answers of several nodes become one answer to the client (protocol: inquiries).

A node whose answer is missing is named in it. Nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from gapless.core.foreign import UNREADABLE
from gapless.core.network.facts import BrokerId
from gapless.core.server.inquiry_mail import AnswerMessage
from gapless.core.wire.messages import (
    AskStatus,
    Code,
    ListedPubend,
    ListPubends,
    ListSubscriptions,
    MissingAnswer,
    PubendList,
    RequestFailed,
    Retire,
    Retired,
    ServerMessage,
    Status,
    SubscriptionList,
)

Answers: TypeAlias = Mapping[BrokerId, Iterable[AnswerMessage]]
"""What each node has answered, in the order of their names. A node with nothing to say has no message."""
Missing: TypeAlias = dict[BrokerId, str]
"""Which nodes have not answered, and why."""
Join: TypeAlias = "Callable[[Any, Answers, Missing], Iterator[ServerMessage]]"

GARBLED: Final = "its answer is not understood here: one of the two nodes is older than the other"
UNEXPECTED: Final = "it has answered something else"


class _Parts:
    """The messages of one kind in these answers; whoever has something else to say goes to the missing ones."""

    def __init__(self, answers: Answers, missing: Missing, kind: type) -> None:
        self._answers = answers
        self._missing = missing
        self._kind = kind
        self.failures: dict[BrokerId, RequestFailed] = {}

    def __iter__(self) -> Iterator[tuple[BrokerId, Any]]:
        for node, messages in self._answers.items():
            try:
                for message in messages:
                    if isinstance(message, RequestFailed):
                        self.failures[node] = message
                        self._missing[node] = message.reason
                    elif isinstance(message, self._kind):
                        yield node, message
                        continue
                    else:
                        self._missing[node] = UNEXPECTED
                    break
            except UNREADABLE:
                self._missing[node] = GARBLED

    def failure(self, request: int) -> RequestFailed | None:
        """The refusal, if every node that was asked has refused."""
        if not self.failures or len(self.failures) < len(self._missing) or len(self.failures) < len(self._answers):
            return None
        first = next(iter(self.failures.values()))
        return RequestFailed(request, first.code, first.reason)


def _named(missing: Missing) -> tuple[MissingAnswer, ...]:
    return tuple(MissingAnswer(node, reason) for node, reason in sorted(missing.items()))


def _all_subscriptions(request: ListSubscriptions, answers: Answers, missing: Missing) -> Iterator[ServerMessage]:
    number = request.request
    parts = _Parts(answers, missing, SubscriptionList)
    before: SubscriptionList | None = None
    for node, message in parts:
        if before is not None:
            yield before
        rows = [replace(row, node=node) for row in message.rows]
        before = SubscriptionList(number, rows, more=True, hidden=message.hidden)
    failed = parts.failure(number)
    if failed is not None:
        yield failed
    else:
        last = before or SubscriptionList(number, [])
        yield replace(last, more=False, missing=_named(missing))


def _all_pubends(request: ListPubends, answers: Answers, missing: Missing) -> Iterator[ServerMessage]:
    parts = _Parts(answers, missing, PubendList)
    rows: list[ListedPubend] = []
    hidden = 0
    for node, message in parts:
        rows += [replace(row, node=node) for row in message.rows]
        hidden += message.hidden
    yield parts.failure(request.request) or PubendList(request.request, rows, _named(missing), hidden)


def _retired_by_all(request: Retire, answers: Answers, missing: Missing) -> Iterator[ServerMessage]:
    """Where one knows the SHB, it does not matter that another one does not: no log waits for it there."""
    said: dict[BrokerId, list[AnswerMessage]] = {}
    for node, messages in answers.items():
        try:
            said[node] = list(messages)
        except UNREADABLE:
            missing[node] = GARBLED
    done = [(node, message) for node, messages in said.items() for message in messages if isinstance(message, Retired)]
    failed = [
        (node, message) for node, messages in said.items() for message in messages if isinstance(message, RequestFailed)
    ]
    unknown = [(node, message) for node, message in failed if message.code is Code.NOT_FOUND]
    refused = [(node, message) for node, message in failed if message.code is not Code.NOT_FOUND]
    names = sorted({message.shb for _, message in done})
    if len(names) > 1:
        reason = f"several SHBs are called so, name one of them in full: {', '.join(names)}"
        yield RequestFailed(request.request, Code.CONFIGURATION, reason)
    elif not done and not missing and failed:
        first = (refused or unknown)[0][1]
        same = [message for _, message in failed if message.code is first.code]
        code = Code.CONFIGURATION if first.code is Code.NOT_FOUND else first.code
        reasons = dict.fromkeys(message.reason for message in same)
        yield RequestFailed(request.request, code, "; ".join(reasons))
    else:
        missing |= {node: message.reason for node, message in refused}
        nodes = dict.fromkeys([node for node, _ in (*done, *unknown) if node not in missing])
        yield Retired(
            request.request,
            names[0] if names else request.shb,
            [pubend for _, message in done for pubend in message.pubends],
            any(message.before for _, message in done),
            tuple(sorted(nodes)),
            _named(missing),
            any(message.running for _, message in done),
        )


def _status_of_one(request: AskStatus, answers: Answers, missing: Missing) -> Iterator[ServerMessage]:
    number = request.request
    parts = _Parts(answers, missing, Status)
    for _, message in parts:
        yield Status(number, message.rows, message.more)
    for node, reason in missing.items():
        failed = parts.failure(number)
        yield failed or RequestFailed(number, Code.NO_ANSWER, f"node {node!r}: {reason}")


JOINS: Final[Mapping[type, Join]] = {
    ListSubscriptions: _all_subscriptions,
    ListPubends: _all_pubends,
    Retire: _retired_by_all,
    AskStatus: _status_of_one,
}
"""What is asked of several nodes, and how their answers become one: as messages to the client."""
NEVER_ANSWERED_BY: Final[Mapping[type, frozenset[str]]] = {
    ListSubscriptions: frozenset({"phb"}),
    ListPubends: frozenset({"shb"}),
    Retire: frozenset({"shb"}),
}
"""The roles that owe no answer to such requests: a node that has no other role is not asked. Other roles may answer.

An SHB that somebody only looks for before it is retired is asked, too, whether it is that one.
"""

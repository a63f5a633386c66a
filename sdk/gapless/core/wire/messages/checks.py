"""Checks of a client's messages beyond their types, where they enter: one table for all messages.

Numbers, and fields that only a foreign program can get wrong, have their bounds at the declaration of the field. A
message out of these bounds cannot be decoded, and its sender loses the session. Fields that an application can get
wrong are in `CHECKS`: a request that fails is answered with the reason; any other message costs the session. No handler
ever gets a message that failed. `tests/unit/gapless/core/wire/messages/test_checks.py` ensures that every field of
every message has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import lt
from typing import Any, Final, NamedTuple, TypeAlias

from gapless.core.wire.messages.asking import AskStatus, Retire, Unsubscribe
from gapless.core.wire.messages.base import NUMBER_MAX, Code
from gapless.core.wire.messages.keyed import PublishKeyed
from gapless.core.wire.messages.publishing import OpenPublisher
from gapless.core.wire.messages.ranges import (
    AcknowledgeDurably,
    AskBound,
    AskEarliest,
    AskHeads,
    Attach,
    ReadRange,
    TakeLease,
    Target,
)
from gapless.core.wire.messages.session import Hello, Renew
from gapless.core.wire.messages.sharing import Extend, Holds, Settle, Sharing, Take, Verdict
from gapless.core.wire.messages.subscribing import Acknowledged, Position, Subscribe
from gapless.core.wire.messages.users import (
    AddUser,
    ChangeUser,
    RemoveUser,
    Verifier,
    groups_problem,
    user_name_problem,
    verifier_problem,
)
from gapless.core.wire.token_room import ID_BYTES_MAX, PUBENDS_MAX
from gapless.texts import NAME_BYTES_MAX, name_problem

MECHANISM_BYTES_MAX: Final = 32
HELLO_BYTES_MAX: Final = 4096
"""The longest payload that is parsed before a client is authenticated (INV14)."""
CREDENTIALS_BYTES_MAX: Final = HELLO_BYTES_MAX
"""No more than in a Hello, which has less room."""


class Problem(NamedTuple):
    """Why a message is refused."""

    code: Code
    reason: str


Check: TypeAlias = "Callable[[Any], Problem | None]"
"""Judges the value of one field."""


def problem_of(message: object) -> Problem | None:
    """Returns what is wrong with a client's message, or None."""
    checks = CHECKS.get(type(message))
    if checks is not None:
        for field, check in checks.items():
            problem = check(getattr(message, field))
            if problem is not None:
                return problem
    return None


def _name(what: str, code: Code = Code.CONFIGURATION, *, empty: bool = False) -> Check:
    def check(name: str | None) -> Problem | None:
        problem = "" if name is None else name_problem(name, empty=empty)
        return Problem(code, f"{what} {problem}") if problem else None

    return check


def _text(what: str, code: Code, bytes_max: int = NAME_BYTES_MAX) -> Check:
    def check(text: str | bytes | None) -> Problem | None:
        size = len(text.encode() if isinstance(text, str) else text or b"")  # what was decoded can be encoded
        return Problem(code, f"{what} has {size} bytes; at most {bytes_max} are taken") if size > bytes_max else None

    return check


def _positions(positions: Sequence[Position] | Sequence[Acknowledged] | None) -> Problem | None:
    for position in () if positions is None or len(positions) > PUBENDS_MAX else positions:
        pubend = position.pubend
        if len(pubend) > ID_BYTES_MAX or not pubend.isprintable():
            return Problem(Code.INVALID_TOKEN, "a position is of a pubend whose name is no name")
    if positions is not None and len(positions) > PUBENDS_MAX:
        return Problem(Code.INVALID_TOKEN, f"{len(positions):,} positions: a token has at most {PUBENDS_MAX:,}")
    return None


def _holds(holds: Holds) -> Problem | None:
    if len(holds.ticks) != len(holds.numbers):
        return Problem(Code.CONFIGURATION, "not every event that is held has the number of its delivery")
    places = list(zip(holds.ticks, holds.numbers, strict=True))
    if not all(map(lt, places, places[1:])):  # an event may be there twice: given back without an answer, and delivered
        return Problem(Code.CONFIGURATION, "the events that are held are not in order")
    return None


def _verdicts(verdicts: Sequence[Verdict]) -> Problem | None:
    return next(filter(None, (_holds(verdict.holds) for verdict in verdicts)), None)


def _sharing(sharing: Sharing | None) -> Problem | None:
    return next(filter(None, map(_holds, () if sharing is None else sharing.holds)), None)


def _target(target: Target | None) -> Problem | None:
    return None if target is None else _text("the subscription's name", Code.NOT_FOUND)(target.name)


def _number(number: int) -> Problem | None:
    return None if number <= NUMBER_MAX else Problem(Code.REJECTED, f"{number} is beyond {NUMBER_MAX}")


def _user_name(name: str) -> Problem | None:
    problem = user_name_problem(name)
    return Problem(Code.CONFIGURATION, f"the user's name {problem}") if problem else None


def _verifier(verifier: Verifier | None) -> Problem | None:
    problem = "" if verifier is None else verifier_problem(verifier)
    return Problem(Code.CONFIGURATION, problem) if problem else None


def _groups(groups: tuple[str, ...] | None) -> Problem | None:
    problem = groups_problem(groups or ())
    return Problem(Code.CONFIGURATION, problem) if problem else None


def _anything(_value: object) -> None:
    """Only the size of the frame bounds it."""


_SUBSCRIPTION = _name("the subscription's name")

_WISH: Final[Mapping[str, Check]] = {
    "name": _SUBSCRIPTION,
    "topics": _anything,  # they become a filter, which has limits, and errors that show the place
    "selector": _anything,
    "positions": _positions,
}
"""The checks that Subscribe and Attach have in common."""

CHECKS: Final[Mapping[type, Mapping[str, Check]]] = {
    Hello: {
        "network": _anything,  # a Hello as a whole has HELLO_BYTES_MAX, and the name is only compared
        "client_id": _name("the client id", empty=True),
        "instance": _name("the client instance"),
        "credentials": _anything,  # the authenticator checks them
        "mechanism": _text("the mechanism", Code.CONFIGURATION, MECHANISM_BYTES_MAX),
    },
    OpenPublisher: {
        "name": _name("the publisher's name", Code.REJECTED),
        "instance": _name("the publisher's instance", Code.REJECTED),
        "topic": _text("the topic", Code.INVALID_TOPIC),
        "pubend": _text("the pubend's id", Code.REJECTED, ID_BYTES_MAX),
        "node": _text("the pubend's node", Code.REJECTED),
    },
    PublishKeyed: {
        "request": _number,
        "epoch": _number,
        "index": _number,
        "producer": _name("the producer's name", Code.REJECTED),
        "topic": _text("the topic", Code.INVALID_TOPIC),
    },
    Subscribe: {**_WISH, "acknowledged": _positions, "sharing": _sharing},
    Attach: _WISH,
    Take: {"holds": _holds},
    Settle: {"verdicts": _verdicts},
    Extend: {"holds": _holds},
    # Not checked: subscriptions of older volumes, with any name, must be removable.
    Unsubscribe: {"name": _anything, "client_id": _anything},
    Renew: {
        "mechanism": _text("the mechanism", Code.CONFIGURATION, MECHANISM_BYTES_MAX),
        "credentials": _text("the credentials", Code.UNAUTHORIZED, CREDENTIALS_BYTES_MAX),
    },
    AddUser: {"name": _user_name, "verifier": _verifier, "groups": _groups},
    ChangeUser: {"name": _user_name, "verifier": _verifier, "groups": _groups},
    RemoveUser: {"name": _text("the user's name", Code.CONFIGURATION)},
    Retire: {"shb": _text("the SHB's name", Code.NOT_FOUND)},
    AskStatus: {"node": _text("the node's name", Code.CONFIGURATION)},
    AskHeads: {"target": _target, "after": _positions},
    AskBound: {"target": _target, "start": _positions},
    AskEarliest: {"target": _target},
    AcknowledgeDurably: {"target": _target, "positions": _positions},
    TakeLease: {"target": _target, "owner": _name("the owner's name")},
    ReadRange: {"target": _target, "pubend": _text("the pubend's id", Code.TOKEN_MISMATCH, ID_BYTES_MAX)},
}
"""The fields of each message that are checked. A request that fails is answered with the code and the reason."""

"""The options of a subscription, checked where an application gives them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final, Literal, TypeAlias, TypedDict

from gapless.core.client import SubscribeOptions
from gapless.core.client.consuming.subscription import WINDOW_EVENTS
from gapless.core.wire.messages import InUse, OnChange, Order, StartAt
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import (
    ConfigurationError,
    InvalidTokenError,
    InvalidTopicError,
    TokenMismatchError,
)
from gapless.selectors.selector import Selector
from gapless.selectors.topics import check_patterns, looks_foreign
from gapless.texts import NAME_BYTES_MAX, exact, name_problem, text_problem

Start: TypeAlias = "str | datetime | CheckpointToken | None"
"""Where a subscription begins; see `Session.subscribe`. A str is "latest" or "earliest". The type is not more precise,
because `stored_token() or "earliest"` would not match it then."""
OnGap: TypeAlias = Literal["raise", "deliver"]
OnConflict: TypeAlias = Literal["error", "wait", "takeover"]
Change: TypeAlias = Literal["error", "keep_position", "jms"]
"""What becomes of a subscription that exists with another filter; see `Session.subscribe`."""
TransformChange: TypeAlias = Literal["error", "keep_position"]
EventOrder: TypeAlias = Literal["pubend", "total"]

PREFETCH_MAX: Final = 1_000_000
"""The most events that a subscription may have buffered here; its bytes have a limit of their own."""


class _Keywords(TypedDict, total=False):
    """What `subscribe` and `transform` both take. The defaults are those of `wanted`."""

    selector: str | Selector
    start: Start
    in_use: OnConflict
    order: EventOrder
    no_local: bool
    prefetch: int | None


class SubscribeKeywords(_Keywords, total=False):
    """The keyword arguments of `Session.subscribe` that do not decide what its iteration yields."""

    name: str | None
    on_change: Change


class TransformKeywords(_Keywords, total=False):
    """The same of `Session.transform`, whose `in_use` is "takeover" by default."""

    on_change: TransformChange


_UNIX: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def check_name(name: Any, what: str) -> str:
    """Checks a name as brokers do: printable text of 1 to 255 bytes. Returns it, or raises ConfigurationError."""
    if problem := name_problem(name):
        shown = f": {name!r}" if isinstance(name, str) else ""
        raise ConfigurationError(f"{what} {problem}; it has 1 to {NAME_BYTES_MAX} bytes that can be printed{shown}")
    return exact(name)


def check_text(text: Any, what: str) -> str:
    """Checks a text that may be empty, and is no name. Returns it, or raises ConfigurationError."""
    if problem := text_problem(text):
        raise ConfigurationError(f"{what} {problem}")
    return exact(text)


def check_choice(value: Any, choices: Mapping[str, Any] | tuple[str, ...], what: str) -> str:
    """Returns the value if it is one of the choices. Raises ConfigurationError otherwise."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigurationError(f"{what} is one of {', '.join(map(repr, choices))}, not {value!r}")
    return value


def check_keywords(given: Iterable[str], known: Collection[str], call: str) -> None:
    """Raises TypeError for a keyword that the call does not take, as Python does where a signature has them all."""
    for keyword in given:
        if keyword not in known:
            raise TypeError(f"{call}() got an unexpected keyword argument {keyword!r}")


def wanted(
    topics: tuple[str, ...],
    network: str,
    *,
    name: str | None = None,
    selector: str | Selector = "",
    start: Start = None,
    in_use: str = "error",
    order: str = "pubend",
    on_change: str = "error",
    no_local: bool = False,
    prefetch: int | None = None,
    silence: bool = False,
) -> SubscribeOptions:
    """Returns the options for the core, with the defaults that the calls of the application have.

    Raises InvalidTopicError, InvalidSelectorError, InvalidTokenError or ConfigurationError for everything that can be
    known to be wrong before the broker is asked.
    """
    if not topics:
        raise InvalidTopicError("name at least one topic to subscribe to; '#' is all of them")
    topics = check_patterns(topics)
    for topic in topics:
        if meant := looks_foreign(topic):
            warnings.warn(
                f"{topic!r} is a topic of exactly that name here: levels have dots between, `*` is any one, and a"
                f" trailing `#` the rest. Did you mean {meant!r}?",
                stacklevel=3,
            )
    if not isinstance(selector, Selector):
        selector = Selector(selector)
    conflict = InUse(check_choice(in_use, tuple(member.value for member in InUse), "in_use"))
    change = OnChange(check_choice(on_change, tuple(member.value for member in OnChange), "on_change"))
    if change is OnChange.JMS and isinstance(start, CheckpointToken):
        raise ConfigurationError(
            "on_change='jms' makes a changed subscription anew at the latest tick: it takes no token as its start"
        )
    return SubscribeOptions(
        topics=topics,
        name=None if name is None else check_name(name, "the name of a subscription"),
        selector=selector.expression,
        in_use=conflict,
        order=Order(check_choice(order, tuple(member.value for member in Order), "order")),
        on_change=change,
        no_local=bool(no_local),
        window_events=WINDOW_EVENTS if prefetch is None else check_prefetch(prefetch),
        silence=silence,
        **_start(start, network),
    )


def check_prefetch(prefetch: Any) -> int:
    """Returns how many events may be buffered. Raises ConfigurationError if that is no number of events."""
    if not isinstance(prefetch, int) or isinstance(prefetch, bool) or not 1 <= prefetch <= PREFETCH_MAX:
        raise ConfigurationError(
            f"prefetch is a number of events from 1 to {PREFETCH_MAX:,}, or None, not {prefetch!r}"
        )
    return prefetch


def _start(start: Any, network: str) -> dict[str, Any]:
    if isinstance(start, CheckpointToken):
        if start.network != network:
            raise TokenMismatchError(f"the token is of network {start.network!r}, this is {network!r}")
        return {
            "start": StartAt.TOKEN,
            "positions": dict(start.ticks),
            "token_sid": start.sid,
            "token_generation": start.generation,
            "token_seal": start.seal,
            "token_home": start.home,
        }
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigurationError(f"start={start!r} has no time zone: whose clock does it mean?")
        wall = (start - _UNIX) // timedelta(milliseconds=1)
        if wall > time.time_ns() // 1_000_000:
            warnings.warn(f"start={start.isoformat()} is yet to come: nothing is delivered before", stacklevel=4)
        return {"start": StartAt.TIME, "start_wall": wall}
    if start is None or start == "latest":
        return {"start": StartAt.LATEST}
    if start == "earliest":
        return {"start": StartAt.EARLIEST}
    if isinstance(start, str):
        raise InvalidTokenError(
            f"start={start!r}: say 'latest', 'earliest', an aware datetime or a CheckpointToken;"
            " the text of a token becomes one with CheckpointToken.parse()"
        )
    raise ConfigurationError(
        f"start is 'latest', 'earliest', an aware datetime or a CheckpointToken, not {type(start).__name__}"
    )

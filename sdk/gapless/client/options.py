"""The options of a subscription, checked where an application gives them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final, Literal, TypeAlias, TypedDict

from gapless.core.client import SubscribeOptions
from gapless.core.client.consuming.subscription import WINDOW_EVENTS
from gapless.core.wire.messages import InUse, OnChange, Order, Sharing, StartAt
from gapless.core.wire.messages.sharing import MILLISECONDS_MAX, WINDOW_MAX
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

SHARED_PREFETCH: Final = 256
"""How many events a consumer of a shared subscription has on their way or buffered: others wait for these."""
SHARED_WINDOW: Final = 4096
"""How many events of a shared subscription may be unsettled."""
RESUME_SECONDS: Final = 5.0
"""For how long what a consumer holds is kept for it when its link is lost."""
ALONE: Final[Mapping[str, Any]] = {"silence": False, "order": "pubend", "no_local": False, "in_use": "error"}
"""Options that only subscriptions that are not shared take, and how these are without them."""
SHARED_ALONE: Final = ("durable", "window", "hold_seconds", "resume_seconds")
"""Options that only shared subscriptions take."""

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


class SharedKeywords(TypedDict, total=False):
    """The keyword arguments of `Session.subscribe` with `shared=True`. The defaults are those of `wanted_shared`."""

    selector: str | Selector
    start: str | datetime | None
    on_change: Change
    prefetch: int | None
    durable: bool
    window: int
    hold_seconds: float | None
    resume_seconds: float


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


def wanted_shared(
    topics: tuple[str, ...],
    network: str,
    *,
    name: str | None = None,
    selector: str | Selector = "",
    start: Start = None,
    on_change: str = "error",
    prefetch: int | None = None,
    durable: bool = True,
    window: Any = SHARED_WINDOW,
    hold_seconds: float | None = None,
    resume_seconds: float = RESUME_SECONDS,
    embedded: bool = False,
    **others: Any,
) -> SubscribeOptions:
    """The same for a consumer of a shared subscription. `embedded`: whether it is in the broker's process.

    `others` are those of a subscription that is not shared: each may be as it is by default.
    """
    if name is None:
        raise ConfigurationError("a shared subscription needs a name, by which its consumers find each other")
    if isinstance(start, CheckpointToken):
        raise ConfigurationError(
            "a shared subscription begins at 'latest', at 'earliest' or at a time: it has no position, so no token"
        )
    for option, why in _NOT_SHARED.items():
        if others.get(option, ALONE[option]) != ALONE[option]:
            raise ConfigurationError(f"a shared subscription takes no {option}={others[option]!r}: {why}")
    if not isinstance(window, int) or isinstance(window, bool) or not 1 <= window <= WINDOW_MAX:
        raise ConfigurationError(f"window is a number of events from 1 to {WINDOW_MAX:,}, not {window!r}")
    sharing = Sharing(
        window=window,
        durable=bool(durable),
        hold_ms=0 if hold_seconds is None else max(1, _milliseconds(hold_seconds, "hold_seconds")),
        resume_ms=_milliseconds(resume_seconds, "resume_seconds"),
        embedded=embedded,
    )
    asked = wanted(
        topics,
        network,
        name=name,
        selector=selector,
        start=start,
        on_change=on_change,
        prefetch=SHARED_PREFETCH if prefetch is None else prefetch,
    )
    return replace(asked, sharing=sharing)


_NOT_SHARED: Final[Mapping[str, str]] = {
    "silence": "it has no position that silence could move",
    "order": "its events go to many consumers, in no order",
    "no_local": "whose events are its own depends on the consumer",
    "in_use": "many may consume it at once",
}
"""Why a shared subscription takes none of `ALONE`."""


def check_unshared(given: Iterable[str]) -> None:
    """Raises ConfigurationError for an option that only shared subscriptions take."""
    for option in given:
        if option in SHARED_ALONE:
            raise ConfigurationError(f"{option} is an option of shared subscriptions: shared=True makes one")


def _milliseconds(seconds: Any, what: str) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise ConfigurationError(f"{what} is a number of seconds, not {seconds!r}")
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds > MILLISECONDS_MAX:
        raise ConfigurationError(f"{what} is {MILLISECONDS_MAX // 1000:,} seconds at most, not {seconds!r}")
    return milliseconds


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

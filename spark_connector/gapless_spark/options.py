"""The options of the source, checked where the user gives them (docs/howto/use-spark.md).

Spark passes all options as texts under names in lower case; its own options, and those of file sources, are among them.
So unknown names are ignored, except those that begin with `gapless.`, which can be meant for nothing else, and those
that look like a name of ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

from gapless.client.addresses import Login, parse, with_login
from gapless.client.credentials import PASSWORD_FILE
from gapless.client.options import check_name
from gapless.errors import ConfigurationError, GaplessError
from gapless.selectors.filters import check_pattern
from gapless.selectors.selector import Selector
from gapless.texts import text_problem

Offsets: TypeAlias = str
"""`subscription`, `earliest`, `latest`, or the text of an offset."""
AckTiming: TypeAlias = Literal["auto", "eager"]

_PREFIX: Final = "gapless."
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)?", re.ASCII)
_SECONDS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a source, in the form in which it uses them."""

    brokers: str
    """An address for `gapless.connect`, with the user and the files of the options in it: no secret goes to workers."""
    subscription: str | None = None
    """Required for streaming. A batch query without one reads through a temporary subscription."""
    client_id: str = ""
    topics: tuple[str, ...] = ("#",)
    selector: str = ""
    starting_offsets: Offsets = "subscription"
    starting_timestamp: datetime | None = None
    ending_offsets: Offsets = "latest"
    fail_on_gap: bool = True
    include_silence: bool = False
    max_events: int | None = None
    max_ticks: int | None = None
    max_bytes: int | None = None
    min_partitions: int = 0
    poll_timeout: float = 0.2
    """In seconds."""
    broker_timeout: float = 60.0
    """In seconds."""
    ack_timing: AckTiming = "auto"
    ack_lag: int = 0
    """In batches."""
    arrow_batch_rows: int = 10_000
    pushdown: bool = False


def _text(value: str) -> str:
    return value


def duration(value: str) -> float:
    """Returns the seconds of a text like `200ms` or `2m`. Raises ValueError."""
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("is a time like 200ms, 1.5s or 2m")
    return float(match[1]) * _SECONDS[match[2] or "ms"]


def _flag(value: str) -> bool:
    lower = value.strip().lower()
    if lower not in _TRUE | _FALSE:
        raise ValueError("is true or false")
    return lower in _TRUE


def _count(least: int) -> Callable[[str], int]:
    def convert(value: str) -> int:
        if not re.fullmatch(r"\s*[0-9]+\s*", value, re.ASCII) or int(value) < least:
            raise ValueError(f"is an integer, at least {least}")
        return int(value)

    return convert


def _brokers(value: str) -> str:
    address = value.strip()
    if not address:
        raise ValueError("names at least one HOST:PORT")
    return address if "://" in address or address.startswith("embedded:") else f"gapless://{address}"


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(topic.strip() for topic in value.split(","))
    for topic in topics:
        check_pattern(topic)
    return topics


def _selector(value: str) -> str:
    return Selector(value).expression


def _subscription(value: str) -> str:
    return check_name(value, "the name of a subscription")


def _time(value: str) -> datetime:
    hint = "is a time with its zone, like 2026-03-01T12:00:00+00:00"
    try:
        time = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(hint) from None
    if time.tzinfo is None:
        raise ValueError(hint)
    return time


def _timing(value: str) -> str:
    if value not in {"auto", "eager"}:
        raise ValueError("is auto or eager")
    return value


OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "brokers": ("brokers", _brokers),
    "user": ("user", _text),
    "passwordFile": ("password_file", _text),
    "tokenFile": ("token_file", _text),
    "subscription": ("subscription", _subscription),
    "clientId": ("client_id", _text),
    "topics": ("topics", _topics),
    "selector": ("selector", _selector),
    "startingOffsets": ("starting_offsets", _text),
    "startingTimestamp": ("starting_timestamp", _time),
    "endingOffsets": ("ending_offsets", _text),
    "failOnGap": ("fail_on_gap", _flag),
    "failOnDataLoss": ("fail_on_gap", _flag),
    "includeSilence": ("include_silence", _flag),
    "maxEventsPerTrigger": ("max_events", _count(1)),
    "maxTicksPerTrigger": ("max_ticks", _count(1)),
    "maxBytesPerTrigger": ("max_bytes", _count(1)),
    "minPartitions": ("min_partitions", _count(0)),
    "pollTimeout": ("poll_timeout", duration),
    "brokerTimeout": ("broker_timeout", duration),
    "ackTiming": ("ack_timing", _timing),
    "ackLag": ("ack_lag", _count(0)),
    "arrowBatchRows": ("arrow_batch_rows", _count(1)),
    "pushdown": ("pushdown", _flag),
}
"""The options by the names that users write: in upper or lower case, with or without `gapless.` before them."""
LOGIN: Final = ("user", "password_file", "token_file")
"""The fields that become a part of the address."""
_BY_LOWER: Final = {name.lower(): (name, *what) for name, what in OPTIONS.items()}
_ALIKE: Final = 0.8
"""How much a name without `gapless.` looks like one of ours when it must be a misspelt one, from 0 to 1."""


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Returns the options of a source. Raises ConfigurationError, which names the option and its possible values."""
    values: dict[str, Any] = {}
    named: dict[str, str] = {}
    for key, text in given.items():
        lower = key.lower()
        found = _BY_LOWER.get(lower.removeprefix(_PREFIX))
        if found is None:
            check_unknown(key, OPTIONS)
            continue
        name, field, convert = found
        if field in named:
            raise ConfigurationError(f"option {name}: {named[field]} says the same; say one of them")
        named[field] = name
        values[field] = _converted(name, text, convert)
    if "brokers" not in values:
        raise ConfigurationError('option brokers is missing: .option("brokers", "HOST:PORT")')
    values["brokers"] = address_of(values["brokers"], *(values.pop(field, "") for field in LOGIN))
    if streaming and "subscription" not in values:
        raise ConfigurationError('option subscription is missing: a stream has a name, .option("subscription", …)')
    if not streaming and "starting_offsets" not in values:
        values["starting_offsets"] = "earliest"
    if "subscription" not in values and values["starting_offsets"].strip().lower() == "subscription":
        raise ConfigurationError("option startingOffsets: there is no option subscription that could stand anywhere")
    options = SourceOptions(**values)
    if options.starting_timestamp is not None and "starting_offsets" in named:
        raise ConfigurationError("option startingTimestamp: startingOffsets says where to begin, too; say one of them")
    return options


def address_of(brokers: str, user: str, password_file: str, token_file: str) -> str:
    """Returns the address with a user and files, which are the same in all workers. Raises ConfigurationError."""
    if user and not password_file:
        password_file = os.environ.get(PASSWORD_FILE, "")
    if not user and not password_file and not token_file:
        parse(brokers)  # it is shown, and goes to all workers: now is the time to refuse one with a password in it
        return brokers
    return with_login(brokers, Login(user, password_file, token_file))


def _converted(name: str, text: str, convert: Callable[[str], Any]) -> Any:
    if problem := text_problem(text):
        raise ConfigurationError(f"option {name} {problem}")
    try:
        return convert(text)
    except GaplessError as error:
        raise ConfigurationError(f"option {name}: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"option {name} {error}; {text!r} is not") from error


def check_unknown(key: str, known: Iterable[str], of: str = "") -> None:
    """Raises ConfigurationError if an option that is none of the known ones can only be a misspelt one of them.

    `known`: their names, as users write them. `of`: what has no such option, for the sentence.
    """
    by_lower = {name.lower(): name for name in known}
    lower = key.lower()
    own = lower.startswith(_PREFIX)
    close = get_close_matches(lower.removeprefix(_PREFIX), by_lower, n=1, cutoff=0.6 if own else _ALIKE)
    if close:
        raise ConfigurationError(f"there is no option {key}{of}; did you mean {by_lower[close[0]]}?")
    if own:
        raise ConfigurationError(f"there is no option {key}{of}; there are {', '.join(by_lower.values())}")

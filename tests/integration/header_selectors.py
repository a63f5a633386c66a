"""Selectors drawn at random, each with what it means; and events that set every header field, or do not.

The meaning is written down here from the specification, for one value at a time, apart from the parser and all matchers
of the product.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from random import Random
from typing import Any

import gapless

Fields = Mapping[str, Any]
Truth = bool | None
Meaning = Callable[[Fields], Truth]
"""True, false, or None for unknown, of properties and header fields by their names in selectors; NULL is absent."""

PRIORITIES = (None, 0, 3, 4, 5, 9)
TEXTS = (None, "", "ash", "Ash", "a%h", "r-17", "é🥕")
NUMBERS = (None, 0, 1, -3, 4, 4.0, 4.5, 9, 2**53 + 1, "4", "ash", True, False)
HEADERS = ("JMSPriority", "JMSTimestamp", "JMSType", "JMSCorrelationID", "JMSMessageID", "JMSDeliveryMode")
NUMERIC = ("a", "b", "JMSPriority", "JMSTimestamp")
TEXTUAL = ("s", "JMSType", "JMSCorrelationID", "JMSMessageID", "JMSDeliveryMode")


@dataclass(frozen=True)
class Sent:
    """An event as it was sent, and what its receipt says."""

    message: gapless.Message
    receipt: gapless.Receipt

    def headers(self) -> dict[str, Any]:
        """What a selector sees of its headers, by hand: a tick is milliseconds since 2020 and 22 bits more."""
        message, receipt = self.message, self.receipt
        since_2020 = datetime(2020, 1, 1, tzinfo=timezone.utc).timestamp() * 1000
        fields = {
            "JMSPriority": message.priority,
            "JMSType": message.type or None,
            "JMSCorrelationID": message.correlation_id or None,
            "JMSMessageID": f"ID:{receipt.pubend}:{receipt.tick}",
            "JMSTimestamp": int(since_2020) + (receipt.tick >> 22),
            "JMSDeliveryMode": "PERSISTENT",
        }
        return {name: value for name, value in fields.items() if value is not None}

    def fields(self) -> dict[str, Any]:
        """Properties and headers together."""
        properties = {name: value for name, value in self.message.properties.items() if value is not None}
        return properties | self.headers()


def message(random: Random, number: int) -> gapless.Message:
    """One that sets some of its headers; its body is its number."""
    priority = random.choice(PRIORITIES)
    properties = {"a": random.choice(NUMBERS), "b": random.choice(NUMBERS), "s": random.choice(TEXTS)}
    return gapless.Message(
        b"%d" % number,
        properties,
        priority=4 if priority is None else priority,
        correlation_id=random.choice(TEXTS),
        type=random.choice(TEXTS),
        reply_to=random.choice((None, "answers")),
    )


def selector(random: Random, now: int, depth: int = 2) -> tuple[str, Meaning]:
    """A selector and what it means; `now` is about when events are published, in milliseconds since 1970."""
    kind = random.randrange(7) if depth else 0
    if kind < 4:
        return random.choice((_number, _number, _arithmetic, _text, _text, _names, _null))(random, now)
    if kind == 4:
        text, meaning = selector(random, now, depth - 1)
        return f"NOT ({text})", lambda fields: _not(meaning(fields))
    (left, one), (right, other) = selector(random, now, depth - 1), selector(random, now, depth - 1)
    if kind == 5:
        return f"({left}) AND ({right})", lambda fields: _and(one(fields), other(fields))
    return f"({left}) OR ({right})", lambda fields: _not(_and(_not(one(fields)), _not(other(fields))))


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _and(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _kind(value: object) -> type:
    return float if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(sign: str, left: Any, right: Any) -> Truth:
    if left is None or right is None:
        return None
    if _kind(left) is not _kind(right) or (sign not in {"=", "<>"} and _kind(left) is not float):
        return False
    return _OPERATORS[sign](left, right)


def _literal(random: Random, name: str, now: int) -> int | float:
    if name == "JMSTimestamp":
        return now + random.randrange(-50, 1500)
    return random.choice([value for value in NUMBERS if _kind(value) is float])  # type: ignore[return-value]


def _number(random: Random, now: int) -> tuple[str, Meaning]:
    name = random.choice(NUMERIC)
    if random.random() < 0.3:
        low, high = sorted((_literal(random, name, now), _literal(random, name, now)))
        text, negated = f"{name} BETWEEN {low} AND {high}", random.random() < 0.4

        def between(fields: Fields) -> Truth:
            value = fields.get(name)
            if negated:
                return _not(_and(_not(_compare("<", value, low)), _not(_compare(">", value, high))))
            return _and(_compare(">=", value, low), _compare("<=", value, high))

        return text.replace("BETWEEN", "NOT BETWEEN") if negated else text, between
    sign, literal = random.choice(list(_OPERATORS)), _literal(random, name, now)
    return f"{name} {sign} {literal}", lambda fields: _compare(sign, fields.get(name), literal)


def _arithmetic(random: Random, _now: int) -> tuple[str, Meaning]:
    if random.random() < 0.4:
        return "JMSTimestamp / 2 * 2 = JMSTimestamp", lambda fields: fields["JMSTimestamp"] % 2 == 0
    sign, limit = random.choice(list(_OPERATORS)), random.choice((0, 4, 8.5))

    def holds(fields: Fields) -> Truth:
        a = fields.get("a")
        return _compare(sign, fields["JMSPriority"] + a, limit) if _kind(a) is float else None

    return f"JMSPriority + a {sign} {limit}", holds


def _text(random: Random, _now: int) -> tuple[str, Meaning]:
    name = random.choice(TEXTUAL)
    negated = random.random() < 0.3
    no = "NOT " if negated else ""
    if name == "JMSMessageID" or random.random() < 0.3:
        end = str(random.randrange(10)) if name == "JMSMessageID" else random.choice(("h", "7", "🥕", "T"))
        return f"{name} {no}LIKE '%{end}'", partial(_like, name, end, negated)
    choices = [random.choice(TEXTS) or "PERSISTENT" for _ in range(random.randrange(1, 4))]
    if len(choices) > 1:
        listed = ", ".join(f"'{choice}'" for choice in choices)
        return f"{name} {no}IN ({listed})", partial(_among, name, choices, negated)
    sign = random.choice(("=", "<>"))
    return f"{name} {sign} '{choices[0]}'", lambda fields: _compare(sign, fields.get(name), choices[0])


def _like(name: str, end: str, negated: bool, fields: Fields) -> Truth:
    value = fields.get(name)
    return None if value is None else isinstance(value, str) and value.endswith(end) is not negated


def _among(name: str, choices: list[str], negated: bool, fields: Fields) -> Truth:
    value = fields.get(name)
    return None if value is None else isinstance(value, str) and (value in choices) is not negated


def _names(random: Random, _now: int) -> tuple[str, Meaning]:
    left, right = random.choice((("a", "JMSPriority"), ("JMSType", "s"), ("JMSCorrelationID", "JMSType"), ("b", "a")))
    sign = random.choice(("=", "<>"))
    return f"{left} {sign} {right}", lambda fields: _compare(sign, fields.get(left), fields.get(right))


def _null(random: Random, _now: int) -> tuple[str, Meaning]:
    name = random.choice((*NUMERIC, *TEXTUAL))
    negated = random.random() < 0.5
    return f"{name} IS {'NOT ' if negated else ''}NULL", lambda fields: (name in fields) is negated

"""The tree of a parsed selector: small frozen nodes. Two trees are equal if they have the same words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Final, TypeAlias

from gapless.selectors.headers import HEADER_KINDS
from gapless.selectors.like import LikePattern
from gapless.selectors.values import ValueKind


def is_reserved(name: str) -> bool:
    """Whether a name is reserved for header fields: it begins with JMS, but not with JMSX or JMS_."""
    return name.startswith("JMS") and not name.startswith(("JMSX", "JMS_"))


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as it is written. `exact` distinguishes 1 from 1.0, which are equal but divide differently."""

    kind: ValueKind
    exact: bool
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Identifier:
    """A property, or a header field. If it is absent, it is NULL."""

    name: str


@dataclass(frozen=True, slots=True)
class Signed:
    """`+operand` or `-operand`."""

    sign: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`first (operator operand)…`, from left to right; all operators have one precedence."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right`; the operator is one of = <> < <= > >=."""

    left: Node
    operator: str
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """`operand [NOT] BETWEEN low AND high`."""

    operand: Node
    low: Node
    high: Node
    negated: bool

    def comparisons(self) -> And | Or:
        """Returns the condition for which it is short."""
        if self.negated:
            return Or((Comparison(self.operand, "<", self.low), Comparison(self.operand, ">", self.high)))
        return And((Comparison(self.operand, ">=", self.low), Comparison(self.operand, "<=", self.high)))


@dataclass(frozen=True, slots=True)
class Membership:
    """`identifier [NOT] IN (choices)`."""

    identifier: Identifier
    choices: tuple[str, ...]
    negated: bool

    def comparisons(self) -> And | Or:
        """Returns the condition for which it is short."""
        literals = [Literal(ValueKind.STRING, exact=False, value=choice) for choice in self.choices]
        if self.negated:
            return And(tuple(Comparison(self.identifier, "<>", literal) for literal in literals))
        return Or(tuple(Comparison(self.identifier, "=", literal) for literal in literals))


@dataclass(frozen=True, slots=True)
class Like:
    """`identifier [NOT] LIKE pattern`."""

    identifier: Identifier
    pattern: LikePattern
    negated: bool


@dataclass(frozen=True, slots=True)
class NullTest:
    """`identifier IS [NOT] NULL`."""

    identifier: Identifier
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT operand`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """`operand AND …`."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """`operand OR …`."""

    operands: tuple[Node, ...]


Condition: TypeAlias = Comparison | Between | Membership | Like | NullTest | Not | And | Or
"""Nodes that are always true, false or unknown. A boolean literal and an identifier may be, too."""

Node: TypeAlias = Literal | Identifier | Signed | Arithmetic | Condition

TRUE: Final = Literal(ValueKind.BOOLEAN, exact=False, value=True)
FALSE: Final = Literal(ValueKind.BOOLEAN, exact=False, value=False)


def static_kind(node: Node) -> ValueKind | None:
    """Returns the only possible kind of a node's value; None if it depends on the event. A condition is a boolean."""
    if isinstance(node, Literal):
        return node.kind
    if isinstance(node, Identifier):
        return HEADER_KINDS.get(node.name)
    if isinstance(node, Signed | Arithmetic):
        return ValueKind.NUMBER
    return ValueKind.BOOLEAN


def names_in(node: object) -> tuple[str, ...]:
    """Returns the names that a tree reads, each once, in the order of their first occurrence."""
    return tuple(dict.fromkeys(_names(node)))


def _names(node: object) -> Iterator[str]:
    if isinstance(node, Identifier):
        yield node.name
    elif isinstance(node, tuple):
        for part in node:
            yield from _names(part)
    elif isinstance(node, Literal | LikePattern):
        return
    elif is_dataclass(node):
        for field in fields(node):
            yield from _names(getattr(node, field.name))

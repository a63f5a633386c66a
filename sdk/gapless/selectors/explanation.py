"""How a selector is read, for people: its text with all parentheses, its names with their kinds, its predicates' truth.

The text means the same as the one that it was made from: parsed again it gives the same tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gapless.selectors.evaluate import Lookup, truth_of
from gapless.selectors.headers import HEADER_KINDS
from gapless.selectors.like import LikePattern
from gapless.selectors.syntax import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Identifier,
    Like,
    Literal,
    Membership,
    Node,
    Not,
    NullTest,
    Or,
    Signed,
    names_in,
    static_kind,
)
from gapless.selectors.values import Truth, Value, ValueKind

_ESCAPE = "\\"


@dataclass(frozen=True, slots=True)
class NameUse:
    """A name in a selector."""

    name: str
    is_header: bool
    kinds: tuple[ValueKind, ...]
    """What its value is asked to be, in the order of the text. None: any kind will do. Several: one value cannot be all
    of them, so some predicate is never true."""


@dataclass(frozen=True, slots=True)
class PredicateTruth:
    """What a predicate of a selector is for one event."""

    text: str
    truth: Truth
    """None: unknown."""
    values: dict[str, Value]
    """Of the names in it; None: the event does not have it, or it is NULL."""


def written_out(node: Node) -> str:
    """The text of a tree, with parentheses around whatever is an operand and is no single word."""
    if isinstance(node, Not):
        return f"NOT {_operand(node.operand)}"
    if isinstance(node, And | Or):
        return (" AND " if isinstance(node, And) else " OR ").join(map(_operand, node.operands))
    return _predicate(node)


def uses_of(node: Node) -> list[NameUse]:
    """The names in a tree, in the order of their first occurrence, with what their values are asked to be."""
    kinds: dict[str, dict[ValueKind, None]] = {name: {} for name in names_in(node)}
    for name, kind in _asked(node, ValueKind.BOOLEAN):
        kinds[name][kind] = None
    return [NameUse(name, name in HEADER_KINDS, tuple(asked)) for name, asked in kinds.items()]


def predicates_of(node: Node, lookup: Lookup) -> list[PredicateTruth]:
    """What each predicate of a tree is for an event: all that is joined by AND, OR and NOT."""
    if isinstance(node, Not):
        return predicates_of(node.operand, lookup)
    if isinstance(node, And | Or):
        return [found for operand in node.operands for found in predicates_of(operand, lookup)]
    values = {name: lookup(name) for name in names_in(node)}
    return [PredicateTruth(written_out(node), truth_of(node)(lookup), values)]


def _operand(node: Node) -> str:
    return written_out(node) if isinstance(node, Literal | Identifier) else _group(node)


def _group(node: Node) -> str:
    return f"({written_out(node)})"


def _predicate(node: Node) -> str:
    negated = "NOT " if isinstance(node, Between | Membership | Like | NullTest) and node.negated else ""
    if isinstance(node, Literal):
        return _literal(node.value)
    if isinstance(node, Identifier):
        return node.name
    if isinstance(node, Signed):  # a sign in front of a digit would belong to the literal
        return f"{node.sign}{node.operand.name if isinstance(node.operand, Identifier) else _group(node.operand)}"
    if isinstance(node, Arithmetic):
        return _operand(node.first) + "".join(f" {sign} {_operand(operand)}" for sign, operand in node.rest)
    if isinstance(node, Comparison):
        return f"{_operand(node.left)} {node.operator} {_operand(node.right)}"
    if isinstance(node, Between):
        return f"{_operand(node.operand)} {negated}BETWEEN {_operand(node.low)} AND {_operand(node.high)}"
    if isinstance(node, Membership):
        return f"{node.identifier.name} {negated}IN ({', '.join(map(_literal, node.choices))})"
    if isinstance(node, Like):
        return f"{node.identifier.name} {negated}LIKE {_pattern(node.pattern)}"
    assert isinstance(node, NullTest), node
    return f"{node.identifier.name} IS {negated}NULL"


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def _pattern(pattern: LikePattern) -> str:
    text = "%".join(
        "".join(
            "_" if at in segment.holes else _ESCAPE + character if character in f"_%{_ESCAPE}" else character
            for at, character in enumerate(segment.text)
        )
        for segment in pattern.segments
    )
    return _literal(text) + (f" ESCAPE '{_ESCAPE}'" if _ESCAPE in text else "")


def _asked(node: Node, kind: ValueKind | None) -> Iterator[tuple[str, ValueKind]]:
    """Each occurrence of a name with the kind that its place asks for; `kind` is what the place of this node does."""
    if isinstance(node, Identifier):
        if kind is not None:
            yield node.name, kind
    elif isinstance(node, Not | And | Or):
        for operand in (node.operand,) if isinstance(node, Not) else node.operands:
            yield from _asked(operand, ValueKind.BOOLEAN)
    elif isinstance(node, Comparison):
        for side, other in ((node.left, node.right), (node.right, node.left)):
            yield from _asked(side, static_kind(other) if node.operator in {"=", "<>"} else ValueKind.NUMBER)
    elif isinstance(node, Membership | Like):
        yield node.identifier.name, ValueKind.STRING
    elif not isinstance(node, Literal | NullTest):
        for number in _numbers_in(node):
            yield from _asked(number, ValueKind.NUMBER)


def _numbers_in(node: Signed | Arithmetic | Between) -> tuple[Node, ...]:
    if isinstance(node, Signed):
        return (node.operand,)
    if isinstance(node, Arithmetic):
        return (node.first, *(operand for _, operand in node.rest))
    return node.operand, node.low, node.high

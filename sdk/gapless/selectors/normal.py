"""The normal form of a tree: AND and OR of predicates, with every NOT pushed into them.

`when(node, True)` holds exactly where the condition is true, `when(node, False)` exactly where it is false; where it is
unknown, neither holds. NOT swaps the two. AND and OR below a NOT swap, too, by De Morgan's laws, which are valid in
three-valued logic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Final, TypeAlias

from gapless.selectors.evaluate import value_of
from gapless.selectors.predicates import (
    Absent,
    BoundPredicate,
    Computed,
    Is,
    NoneOf,
    OneOf,
    Predicate,
    Present,
    Refuted,
    Resembles,
    Unary,
)
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
)
from gapless.selectors.values import MIRRORED, Value, ValueKind, compare


@dataclass(frozen=True, slots=True)
class AllOf:
    """Holds if each of its parts holds; always, if it has no parts."""

    parts: tuple[Normal, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Holds if one of its parts holds; never, if it has no parts."""

    parts: tuple[Normal, ...]


Normal: TypeAlias = AllOf | AnyOf | Predicate

ALWAYS: Final = AllOf(())
NEVER: Final = AnyOf(())


def normal_form(node: Node) -> Normal:
    """Returns a condition that holds for exactly the events that the tree selects.

    Trees that differ only in spelling have the same normal form: order within AND and OR, repetition, 1 for 1.0, IN for
    several =. It is not the smallest form, and two trees with the same meaning may still have different forms.
    """
    return when(node, wanted=True)


@singledispatch
def when(node: Node, *, wanted: bool) -> Normal:
    """Returns a condition that holds where the node is `wanted`."""
    raise TypeError(f"no condition that could be {wanted}: {node!r}")


@when.register
def _(node: Literal, *, wanted: bool) -> Normal:
    return ALWAYS if node.value is wanted else NEVER


@when.register
def _(node: Identifier, *, wanted: bool) -> Normal:
    # A name alone is unknown if its value is no boolean, so its NOT is no `Refuted`.
    return Is(node.name, wanted)


@when.register
def _(node: Not, *, wanted: bool) -> Normal:
    return when(node.operand, wanted=not wanted)


@when.register
def _(node: And, *, wanted: bool) -> Normal:
    parts = [when(operand, wanted=wanted) for operand in node.operands]
    return all_of(parts) if wanted else any_of(parts)


@when.register
def _(node: Or, *, wanted: bool) -> Normal:
    parts = [when(operand, wanted=wanted) for operand in node.operands]
    return any_of(parts) if wanted else all_of(parts)


@when.register
def _(node: Between, *, wanted: bool) -> Normal:
    return when(node.comparisons(), wanted=wanted)


@when.register
def _(node: Membership, *, wanted: bool) -> Normal:
    constants = _in_order(node.choices)
    name = node.identifier.name
    return _asked(NoneOf(name, ValueKind.STRING, constants) if node.negated else OneOf(name, constants), wanted=wanted)


@when.register
def _(node: Like, *, wanted: bool) -> Normal:
    name, only = node.identifier.name, node.pattern.literal
    if only is None:
        return _asked(Resembles(name, node.pattern, node.negated), wanted=wanted)
    return _asked(NoneOf(name, ValueKind.STRING, (only,)) if node.negated else OneOf(name, (only,)), wanted=wanted)


@when.register
def _(node: NullTest, *, wanted: bool) -> Normal:
    return Absent(node.identifier.name) if node.negated is not wanted else Present(node.identifier.name)


@when.register
def _(node: Comparison, *, wanted: bool) -> Normal:
    left, right = _is_constant(node.left), _is_constant(node.right)
    if left and right:
        truth = compare(_constant(node.left), node.operator, _constant(node.right))
        return ALWAYS if truth is wanted else NEVER
    if right and isinstance(node.left, Identifier):
        found = _against_constant(node.left.name, node.operator, _constant(node.right), wanted=wanted)
    elif left and isinstance(node.right, Identifier):
        found = _against_constant(node.right.name, MIRRORED[node.operator], _constant(node.left), wanted=wanted)
    else:
        found = None
    return Computed(node, wanted) if found is None else found


# --------------------------------------------------------------------------------------- comparisons


def _is_constant(node: Node) -> bool:
    if isinstance(node, Signed):
        return _is_constant(node.operand)
    if isinstance(node, Arithmetic):
        return all(map(_is_constant, (node.first, *(operand for _, operand in node.rest))))
    return isinstance(node, Literal)


def _constant(node: Node) -> Value:
    """Returns the value of a constant; a whole number as an int, so that equal predicates are equal objects."""
    value = value_of(node)(lambda _name: None)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _against_constant(name: str, operator: str, constant: Value, *, wanted: bool) -> Normal | None:
    """Compares a name with a constant. Returns None for NaN, which has no place in an order."""
    if constant is None:
        return NEVER  # unknown for every event
    if isinstance(constant, bool):
        return _asked(Is(name, constant is (operator == "=")), wanted=wanted)
    if isinstance(constant, float) and math.isnan(constant):
        return None
    if operator == "=":
        return _asked(OneOf(name, (constant,)), wanted=wanted)
    if operator == "<>":
        kind = ValueKind.STRING if isinstance(constant, str) else ValueKind.NUMBER
        return _asked(NoneOf(name, kind, (constant,)), wanted=wanted)
    assert not isinstance(constant, str), "the parser lets no string be ordered"
    return _asked(BoundPredicate(name, operator, constant), wanted=wanted)


def _asked(predicate: Unary, *, wanted: bool) -> Normal:
    """Returns the predicate, or its `Refuted` form. For these predicates, NULL alone makes the condition unknown."""
    return predicate if wanted else Refuted(predicate.name, predicate)


# --------------------------------------------------------------------------------------- AND and OR


def all_of(parts: Iterable[Normal]) -> Normal:
    """Returns the AND of the parts: flat, without repetition, in a fixed order."""
    flat = _flat(parts, AllOf)
    if NEVER in flat:
        return NEVER
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(parts: Iterable[Normal]) -> Normal:
    """Returns the OR of the parts: flat, without repetition, in a fixed order. Equalities of a name are joined."""
    flat = _flat(_merged(_flat(parts, AnyOf)), AnyOf)
    if ALWAYS in flat:
        return ALWAYS
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def _flat(parts: Iterable[Normal], junction: type[AllOf | AnyOf]) -> list[Normal]:
    flat: dict[Normal, None] = {}
    for part in parts:
        flat.update(dict.fromkeys(part.parts if isinstance(part, junction) else (part,)))
    return sorted(flat, key=repr)


def _merged(parts: Sequence[Normal]) -> list[Normal]:
    constants: dict[str, list[str | int | float]] = {}
    others: list[Normal] = []
    for part in parts:
        if isinstance(part, OneOf):
            constants.setdefault(part.name, []).extend(part.constants)
        else:
            others.append(part)
    return [*others, *(OneOf(name, _in_order(found)) for name, found in constants.items())]


def _in_order(constants: Iterable[str | int | float]) -> tuple[str | int | float, ...]:
    distinct = dict.fromkeys(constants)
    return tuple(sorted(distinct, key=lambda constant: (isinstance(constant, str), constant)))

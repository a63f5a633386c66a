"""The meaning of a tree, written as in the specification: each node becomes a function of one event.

This is the reference for everything faster: predicates, masks and indexes must agree with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TypeAlias

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
from gapless.selectors.values import Truth, Value, calculate, compare, negation, negative, number_or_null

Lookup: TypeAlias = Callable[[str], Value]
"""Returns a name's value in one event; None if it is absent."""

Valuation: TypeAlias = Callable[[Lookup], Value]
Condition: TypeAlias = Callable[[Lookup], Truth]


def truth_of(node: Node) -> Condition:
    """Returns a function for the truth of a condition: true, false or unknown. A non-boolean value is unknown."""
    valuation = value_of(node)

    def truth(lookup: Lookup) -> Truth:
        value = valuation(lookup)
        return value if isinstance(value, bool) else None

    return truth


@singledispatch
def value_of(node: Node) -> Valuation:
    """Returns a function for a node's value in an event. The value of a condition is its truth."""
    raise TypeError(f"not a node: {node!r}")


@value_of.register
def _(node: Literal) -> Valuation:
    value = node.value
    return lambda _lookup: value


@value_of.register
def _(node: Identifier) -> Valuation:
    name = node.name
    return lambda lookup: lookup(name)


@value_of.register
def _(node: Signed) -> Valuation:
    operand = value_of(node.operand)
    apply = negative if node.sign == "-" else number_or_null
    return lambda lookup: apply(operand(lookup))


@value_of.register
def _(node: Arithmetic) -> Valuation:
    first = value_of(node.first)
    rest = [(operator, value_of(operand)) for operator, operand in node.rest]

    def value(lookup: Lookup) -> Value:
        result = first(lookup)
        for operator, operand in rest:
            result = calculate(result, operator, operand(lookup))
        return result

    return value


@value_of.register
def _(node: Comparison) -> Condition:
    left, operator, right = value_of(node.left), node.operator, value_of(node.right)
    return lambda lookup: compare(left(lookup), operator, right(lookup))


@value_of.register(Between)
@value_of.register(Membership)
def _(node: Between | Membership) -> Condition:
    return truth_of(node.comparisons())


@value_of.register
def _(node: Like) -> Condition:
    name, matches, negated = node.identifier.name, node.pattern.matcher(), node.negated

    def truth(lookup: Lookup) -> Truth:
        value = lookup(name)
        if value is None:
            return None
        return isinstance(value, str) and matches(value) is not negated

    return truth


@value_of.register
def _(node: NullTest) -> Condition:
    name, negated = node.identifier.name, node.negated
    return lambda lookup: (lookup(name) is None) is not negated


@value_of.register
def _(node: Not) -> Condition:
    operand = truth_of(node.operand)
    return lambda lookup: negation(operand(lookup))


@value_of.register(And)
@value_of.register(Or)
def _(node: And | Or) -> Condition:
    operands = [truth_of(operand) for operand in node.operands]
    # One operand with this value decides the whole. Without it, one unknown operand leaves the whole unknown.
    decisive = isinstance(node, Or)

    def truth(lookup: Lookup) -> Truth:
        result: Truth = not decisive
        for operand in operands:
            found = operand(lookup)
            if found is decisive:
                return decisive
            if found is None:
                result = None
        return result

    return truth

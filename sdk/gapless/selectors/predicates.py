"""Predicates, the atoms of a selector: tests that *hold* for an event or do not; nothing is unknown here.

A predicate holds where its condition is true. NOT needs that a condition is false, which is a predicate of its own:
`Refuted` means "there is a value, and the condition is false for it". So AND and OR of predicates are two-valued: NULL
is handled once, here.

Each predicate has two forms that must agree: a test of one event, and a mask for a whole batch. Both are made once and
used often. Equal predicates hold for the same events, however they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gapless.selectors.columns import ColumnBatch, ValueColumn
from gapless.selectors.evaluate import truth_of
from gapless.selectors.headers import HEADER_KINDS
from gapless.selectors.like import LikePattern
from gapless.selectors.syntax import Node, names_in
from gapless.selectors.values import ORDERINGS, Value, ValueKind

Values: TypeAlias = Mapping[str, Value]
ValueTest: TypeAlias = Callable[[Value], bool]
EventTest: TypeAlias = Callable[[Values, Values], bool]
"""(properties, headers) → whether it holds."""

ColumnMask: TypeAlias = Callable[[ValueColumn], int]
BatchMask: TypeAlias = Callable[[ColumnBatch], int]

_NUMBER: Final = (int, float)
_FEW: Final = 8
"""So few constants are searched as fast in a tuple as in a set."""
_SIDES: Final = {"<": ValueColumn.below, "<=": ValueColumn.at_most, ">": ValueColumn.above, ">=": ValueColumn.at_least}


class Predicate:
    """A condition that holds for an event or does not.

    It is not an ABC: its type is checked so often that the slower `isinstance` of ABCs would be noticeable.
    """

    __slots__ = ()

    def event_test(self) -> EventTest:
        """Returns a test for one event."""
        raise NotImplementedError

    def batch_mask(self) -> BatchMask:
        """Returns a function that finds the events of a batch for which it holds."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Unary(Predicate):
    """A predicate on the value of one name."""

    name: str

    def test(self) -> ValueTest:
        """Returns a test for one value; None is NULL."""
        raise NotImplementedError

    def column_mask(self) -> ColumnMask:
        """Returns a function that finds the events of a column for which it holds."""
        raise NotImplementedError

    def event_test(self) -> EventTest:
        """Returns a function that looks the value up and tests it."""
        name, test = self.name, self.test()
        if name in HEADER_KINDS:
            return lambda _properties, headers: test(headers.get(name))
        return lambda properties, _headers: test(properties.get(name))

    def batch_mask(self) -> BatchMask:
        """Returns a function that looks the column up and searches it."""
        name, column_mask = self.name, self.column_mask()
        return lambda batch: column_mask(batch.column(name))


@dataclass(frozen=True, slots=True)
class OneOf(Unary):
    """The value is one of these strings and numbers: `=`, `IN`. Sorted, without duplicates."""

    constants: tuple[str | int | float, ...]

    def test(self) -> ValueTest:
        """Tests whether a value is among them; True is not 1 here."""
        if len(self.constants) <= _FEW:
            return self._has
        constants = frozenset(self.constants)
        return lambda value: value in constants and value is not True and value is not False

    def column_mask(self) -> ColumnMask:
        """Joins the groups of the constants."""
        return self._in_column

    # Methods instead of closures, like those of `BoundPredicate`: an index has very many of these two.

    def _has(self, value: Value) -> bool:
        return value in self.constants and value is not True and value is not False

    def _in_column(self, column: ValueColumn) -> int:
        return column.one_of(self.constants)


@dataclass(frozen=True, slots=True)
class NoneOf(Unary):
    """The value is of this kind and none of these: `<>`, `NOT IN`. Sorted, without duplicates."""

    kind: ValueKind
    constants: tuple[str | int | float, ...]

    def test(self) -> ValueTest:
        """Tests whether a value is of the kind and not among the constants."""
        constants = frozenset(self.constants)
        types = str if self.kind is ValueKind.STRING else _NUMBER
        return lambda value: isinstance(value, types) and not isinstance(value, bool) and value not in constants

    def column_mask(self) -> ColumnMask:
        """Finds all values of the kind, without the groups of the constants."""
        constants = self.constants
        if self.kind is ValueKind.STRING:
            return lambda column: column.strings & ~column.one_of(constants)
        return lambda column: column.numbers & ~column.one_of(constants)


@dataclass(frozen=True, slots=True)
class BoundPredicate(Unary):
    """The value is a number on this side of a limit: `<`, `<=`, `>`, `>=`."""

    operator: str
    limit: int | float

    def test(self) -> ValueTest:
        """Tests whether a value is a number on that side."""
        return self._has

    def column_mask(self) -> ColumnMask:
        """Uses the order of the numbers in the column."""
        return self._in_column

    def _has(self, value: Value) -> bool:
        if not isinstance(value, _NUMBER) or value is True or value is False:
            return False
        return ORDERINGS[self.operator](value, self.limit)

    def _in_column(self, column: ValueColumn) -> int:
        return _SIDES[self.operator](column, self.limit)


@dataclass(frozen=True, slots=True)
class Resembles(Unary):
    """The value is a string that matches a pattern, or one that does not: `[NOT] LIKE`."""

    pattern: LikePattern
    negated: bool

    def test(self) -> ValueTest:
        """Tests whether a value is a string and matches, or does not."""
        matches, negated = self.pattern.matcher(), self.negated
        return lambda value: isinstance(value, str) and matches(value) is not negated

    def column_mask(self) -> ColumnMask:
        """Matches each distinct string once."""
        test = self.test()
        return lambda column: column.one_of(filter(test, column.groups))


@dataclass(frozen=True, slots=True)
class Is(Unary):
    """The value is this boolean: a bare name, `= TRUE`, `<> FALSE`."""

    wanted: bool

    def test(self) -> ValueTest:
        """Tests whether a value is that boolean; 1 is not True."""
        wanted = self.wanted
        return lambda value: value is wanted

    def column_mask(self) -> ColumnMask:
        """Returns one of the two masks that a column has for booleans."""
        return (lambda column: column.true) if self.wanted else (lambda column: column.false)


@dataclass(frozen=True, slots=True)
class Absent(Unary):
    """There is no value: `IS NULL`."""

    def test(self) -> ValueTest:
        """Tests whether a value is NULL."""
        return lambda value: value is None

    def column_mask(self) -> ColumnMask:
        """Finds the events without the name."""
        return lambda column: column.null


@dataclass(frozen=True, slots=True)
class Present(Unary):
    """There is a value: `IS NOT NULL`."""

    def test(self) -> ValueTest:
        """Tests whether a value is not NULL."""
        return lambda value: value is not None

    def column_mask(self) -> ColumnMask:
        """Finds the events with the name."""
        return lambda column: column.present


@dataclass(frozen=True, slots=True)
class Refuted(Unary):
    """There is a value, and `predicate` does not hold for it: the result of NOT before a comparison.

    It differs from the opposite comparison: `x <> 'a'` does not hold for the number 5, but `NOT (x = 'a')` does.
    """

    predicate: Unary

    def test(self) -> ValueTest:
        """Tests whether there is a value, and it fails."""
        test = self.predicate.test()
        return lambda value: value is not None and not test(value)

    def column_mask(self) -> ColumnMask:
        """Finds the events with the name, without those for which the predicate holds."""
        column_mask = self.predicate.column_mask()
        return lambda column: column.present & ~column_mask(column)


@dataclass(frozen=True, slots=True)
class Computed(Predicate):
    """A condition of any other shape, such as arithmetic or name against name, has the value `wanted`."""

    node: Node
    wanted: bool

    def event_test(self) -> EventTest:
        """Evaluates the condition itself."""
        truth, wanted = truth_of(self.node), self.wanted
        return lambda properties, headers: truth(_lookup(properties, headers)) is wanted

    def batch_mask(self) -> BatchMask:
        """Evaluates it for each event; or, if it depends on one name alone, for each distinct value."""
        holds = self.event_test()
        names = names_in(self.node)
        if len(names) != 1:
            return lambda batch: batch.where(holds)
        name = names[0]
        is_header = name in HEADER_KINDS

        def holds_for(value: Value) -> bool:
            return holds({}, {name: value}) if is_header else holds({name: value}, {})

        def mask(batch: ColumnBatch) -> int:
            column = batch.column(name)
            # 1 and 1.0 are one group of a column, and so are 0.0 and -0.0; but they divide differently.
            return batch.where(holds) if column.has_floats else column.where(holds_for)

        return mask


def names_header(predicate: Predicate) -> bool:
    """Whether a predicate reads a header field."""
    if isinstance(predicate, Unary):
        return predicate.name in HEADER_KINDS
    assert isinstance(predicate, Computed)
    return any(name in HEADER_KINDS for name in names_in(predicate.node))


def _lookup(properties: Values, headers: Values) -> Callable[[str], Value]:
    return lambda name: headers.get(name) if name in HEADER_KINDS else properties.get(name)

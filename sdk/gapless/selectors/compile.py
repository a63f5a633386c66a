"""Compiles normal forms: to a test of one event, and to masks of batches in which predicates are shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from gapless.selectors.columns import ColumnBatch
from gapless.selectors.headers import HEADER_KINDS
from gapless.selectors.normal import AllOf, AnyOf, Normal
from gapless.selectors.predicates import (
    BoundPredicate,
    Computed,
    EventTest,
    Is,
    OneOf,
    Predicate,
    Unary,
    Values,
    names_header,
)


def event_test(normal: Normal) -> EventTest:
    """Returns a function that tests whether a normal form holds for an event, given its properties and headers."""
    if isinstance(normal, Predicate):
        return normal.event_test()
    tests = [event_test(part) for part in sorted(normal.parts, key=cost)]
    # One result decides the whole: for AND that a part fails, for OR that a part holds.
    decisive = isinstance(normal, AnyOf)

    def holds(properties: Values, headers: Values) -> bool:
        for test in tests:
            if test(properties, headers) is decisive:
                return decisive
        return not decisive

    return holds


_COSTS: Final[dict[type, int]] = {Is: 0, OneOf: 0, BoundPredicate: 1, AllOf: 3, AnyOf: 3, Computed: 4}


def cost(normal: Normal) -> int:
    """Returns how late a part should be tested: cheap and selective parts come first."""
    return _COSTS.get(type(normal), 2)


class SharedPredicate:
    """A predicate that any number of filters share, and that is evaluated once per batch.

    Its functions are made when they are first needed. Of many filters most are behind an equality that excludes them,
    so their other predicates are never evaluated.
    """

    __slots__ = ("_mask", "_test", "predicate", "references")

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.references = 0
        self._mask: Callable[..., int] | None = None
        self._test: Callable[..., bool] | None = None

    @property
    def normal(self) -> Normal:
        """The normal form from which it was made."""
        return self.predicate

    def holds(self, properties: Values, headers: Values) -> bool:
        """Whether it holds for one event."""
        predicate = self.predicate
        if isinstance(predicate, Unary):
            if self._test is None:
                self._test = predicate.test()
            return self._test((headers if predicate.name in HEADER_KINDS else properties).get(predicate.name))
        if self._test is None:
            self._test = predicate.event_test()
        return self._test(properties, headers)

    def mask(self, batch: ColumnBatch) -> int:
        """Returns the mask of the events for which it holds."""
        mask = batch.masks.get(self)
        if mask is None:
            mask = batch.masks[self] = self._new_mask(batch)
        return mask

    def _new_mask(self, batch: ColumnBatch) -> int:
        predicate = self.predicate
        if isinstance(predicate, Unary):
            if self._mask is None:
                self._mask = predicate.column_mask()
            return self._mask(batch.column(predicate.name))
        if self._mask is None:
            self._mask = predicate.batch_mask()
        return self._mask(batch)


@dataclass(frozen=True, slots=True)
class AllMasks:
    """A conjunction (AND)."""

    parts: tuple[MaskNode, ...]

    @property
    def normal(self) -> Normal:
        """The normal form from which it was made, in another order."""
        return AllOf(tuple(part.normal for part in self.parts))

    def holds(self, properties: Values, headers: Values) -> bool:
        """Whether all parts hold for one event."""
        for part in self.parts:  # noqa: SIM110 - half the time of all() for the few parts there are
            if not part.holds(properties, headers):
                return False
        return True

    def mask(self, batch: ColumnBatch) -> int:
        """Returns the mask of the events for which all parts hold. It stops when no event is left."""
        mask = batch.full
        for part in self.parts:
            mask &= part.mask(batch)
            if not mask:
                break
        return mask


@dataclass(frozen=True, slots=True)
class AnyMasks:
    """A disjunction (OR)."""

    parts: tuple[MaskNode, ...]

    @property
    def normal(self) -> Normal:
        """The normal form from which it was made, in another order."""
        return AnyOf(tuple(part.normal for part in self.parts))

    def holds(self, properties: Values, headers: Values) -> bool:
        """Whether at least one part holds for one event."""
        return any(part.holds(properties, headers) for part in self.parts)

    def mask(self, batch: ColumnBatch) -> int:
        """Returns the mask of the events for which at least one part holds."""
        mask = 0
        for part in self.parts:
            mask |= part.mask(batch)
        return mask


MaskNode: TypeAlias = SharedPredicate | AllMasks | AnyMasks


class MaskCompiler:
    """Makes mask nodes. Equal predicates share one object, as long as it is used.

    So two nodes of one compiler are equal if and only if their normal forms are equal.
    """

    def __init__(self) -> None:
        self._shared: dict[Predicate, SharedPredicate] = {}
        self.naming_headers = 0
        """How many of the predicates in use read a header field."""

    def __len__(self) -> int:
        """How many distinct predicates are in use."""
        return len(self._shared)

    def acquire(self, normal: Normal) -> MaskNode:
        """Returns the node of a normal form. It has to be released later."""
        if isinstance(normal, Predicate):
            shared = self._shared.get(normal)
            if shared is None:
                shared = self._shared[normal] = SharedPredicate(normal)
                self.naming_headers += names_header(normal)
            shared.references += 1
            return shared
        parts = tuple(self.acquire(part) for part in sorted(normal.parts, key=cost))
        return AllMasks(parts) if isinstance(normal, AllOf) else AnyMasks(parts)

    def release(self, node: MaskNode) -> None:
        """Releases a node."""
        if isinstance(node, SharedPredicate):
            node.references -= 1
            if node.references == 0:
                del self._shared[node.predicate]
                self.naming_headers -= names_header(node.predicate)
            return
        for part in node.parts:
            self.release(part)

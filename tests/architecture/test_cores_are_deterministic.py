"""No core goes through a set in the set's own order, which differs from process to process.

A judgement by the syntax tree: what is a set is known from literals, calls and annotations of the same
file. Going through one is fine where order cannot show (any, all, sum, len, min, max, sorted, sets).
"""

from __future__ import annotations

import ast

import pytest

from architecture.project import Source, contracts, is_within, package_sources, parse

PURE_PACKAGES = contracts()["importlinter:contract:sans-io"]["source_modules"]

SET_TYPES = {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}
SET_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
ORDER_KEEPING_CALLS = {"deque", "dict.fromkeys", "enumerate", "iter", "list", "map", "next", "tuple", "zip"}
ORDER_FREE_CALLS = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}


class SetIteration(ast.NodeVisitor):
    """Collects the places of one file where a set's order gets out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.places: list[str] = []
        self._order_free: set[int] = set()
        self._sets = _names_of_sets(source.tree)

    def visit_For(self, node: ast.For) -> None:
        self._check(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._check(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        if called in ORDER_FREE_CALLS or called.rpartition(".")[2] in {*SET_METHODS, "update", "issubset"}:
            self._order_free.update(id(argument) for argument in node.args)
        elif called in ORDER_KEEPING_CALLS or called.rpartition(".")[2] in {"join", "extend"}:
            for argument in node.args:
                self._check(argument)
        elif called.rpartition(".")[2] == "pop" and not node.args and not node.keywords:
            self._check(node.func.value if isinstance(node.func, ast.Attribute) else node)
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        self._order_free.update(id(element) for element in node.elts)
        for element in node.elts:
            self.visit(element.value if isinstance(element, ast.Starred) else element)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._check_generators(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._check_generators(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._check_generators(node)

    def _check_generators(self, node: ast.ListComp | ast.DictComp | ast.GeneratorExp) -> None:
        if id(node) not in self._order_free:
            for generator in node.generators:
                self._check(generator.iter)
        self.generic_visit(node)

    def _check(self, iterated: ast.expr) -> None:
        if _is_set(iterated, self._sets):
            where, what = self.source.at(iterated), ast.unparse(iterated)
            self.places.append(f"{where}: the order of the set {what} gets out: sorted()")


def _names_of_sets(tree: ast.AST) -> set[str]:
    """Names and attributes that are annotated as sets, or only ever given sets, anywhere in the file."""
    annotated: set[str] = set()
    given: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None and _annotates_set(node.annotation):
            annotated.add(node.arg)
        elif isinstance(node, ast.AnnAssign):
            if _annotates_set(node.annotation):
                annotated.add(_last_name(node.target))
            else:
                given[_last_name(node.target)] = False
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                name = _last_name(target)
                given[name] = given.get(name, True) and _is_set(node.value, annotated)
    return annotated | {name for name, always in given.items() if always} - {""}


def _annotates_set(annotation: ast.expr) -> bool:
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return ast.unparse(outer).rpartition(".")[2] in SET_TYPES


def _last_name(target: ast.expr) -> str:
    """`x` of x, self.x and other.x: within a file one name is taken for one thing."""
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def _is_set(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, (ast.Set, ast.SetComp)):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, SET_OPERATORS):
        return _is_set(node.left, names) or _is_set(node.right, names)
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called in {"set", "frozenset"}:
            return True
        return (
            isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS and _is_set(node.func.value, names)
        )
    return isinstance(node, (ast.Name, ast.Attribute)) and _last_name(node) in names


def set_iterations(source: Source) -> list[str]:
    """Every place of a file where the order of a set gets out."""
    visitor = SetIteration(source)
    visitor.visit(source.tree)
    return visitor.places


def test_no_core_goes_through_a_set_in_its_own_order() -> None:
    cores = [source for source in package_sources() if is_within(source.module, PURE_PACKAGES)]

    assert cores != []
    assert [place for source in cores for place in set_iterations(source)] == []


@pytest.mark.parametrize(
    "breach",
    [
        "for x in {1, 2}: pass",
        "seen = set()\nfor x in seen: pass",
        "def f(seen: set[str]): return list(seen)",
        "class C:\n    seen: set[str]\n    def f(self): return [x for x in self.seen]",
        "def f(a: frozenset[str], b): return tuple(a - b)",
        "def f(a: set[str]): return ','.join(a)",
        "def f(a: set[str]): return {x: 1 for x in a}",
        "def f(a: set[str]): return a.pop()",
        "def f(a: set[str]): return [*a]",
    ],
)
def test_a_breach_is_seen(breach: str) -> None:
    assert len(set_iterations(parse(breach))) == 1


@pytest.mark.parametrize(
    "harmless",
    [
        "for x in sorted({1, 2}): pass",
        "for x in [1, 2]: pass",
        "def f(a: set[str]): return any(x > 'b' for x in a)",
        "def f(a: set[str]): return {x for x in a}",
        "def f(a: set[str]): return {*a, 'b'}",
        "def f(a: set[str]): return min(a)",
        "def f(a: dict[str, int]): return [*a]",
        "def f(a: int, b: int): return list(range(a & b))",
        "def f(a: list[str]): return a.pop()",
    ],
)
def test_what_shows_no_order_is_let_be(harmless: str) -> None:
    assert set_iterations(parse(harmless)) == []

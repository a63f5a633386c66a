"""Tests read few private names of others: what they lean on is a contract, and the rest may change.

A read is `x._name` where `x` is neither `self` nor `cls`. Writing one, to break something on purpose, is no read.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from architecture.project import ROOT, parse, sources

READS_MOST = 250
"""The ratchet: so many there are. Whoever makes them fewer lowers it; it never rises."""


PUBLIC = {("os", "_exit"), ("sys", "_getframe")}
"""Of Python's own; documented for everyone's use, whatever their names look like."""


def reads(tree: ast.AST) -> Iterator[str]:
    """The private names that are read on an object of somebody else."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        if not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner not in {"self", "cls"} and (owner, node.attr) not in PUBLIC:
            yield node.attr


def test_tests_read_no_more_private_names_of_others_than_before() -> None:
    counts: Counter[str] = Counter()
    for source in sources(ROOT / "tests"):
        counts[str(source.path.relative_to(ROOT))] = sum(1 for _ in reads(source.tree))

    assert counts.total() <= READS_MOST, f"most are in {counts.most_common(5)}"


def test_what_counts_as_a_read() -> None:
    source = parse(
        "a._one\nself._two\ncls._three\nself.b._four\nc._five = 5\nd.__six__\ne._seven()\nf.eight\nos._exit(0)\n"
    )

    assert [*reads(source.tree)] == ["_one", "_four", "_seven"]

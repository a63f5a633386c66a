"""docs/protocol/knowledge-router.md draws which part of the router takes what; it is drawn from the router's tables.

After a change that is meant, set REWRITE_DIAGRAMS=1 to draw it anew.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

from architecture.project import ROOT
from gapless.core.network.facts import FrameArrived, Wake
from gapless.core.network.frames import Private
from gapless.core.network.links import LinkPhase
from gapless.core.network.seam import RouterBase, RouterContext
from gapless_routing.common.link_table import CAN_WAIT
from gapless_routing.common.relay_router import RelayRouter
from gapless_routing.knowledge.router import KnowledgeRouter

PAGE = ROOT / "docs" / "protocol" / "knowledge-router.md"
LINKS_PAGE = ROOT / "docs" / "protocol" / "links.md"
REWRITE = os.environ.get("REWRITE_DIAGRAMS") == "1"
HEADING = ("part", "facts of its own node", "messages of other brokers", "timers")
WIDTHS = (12, 34, 34, 24)

_BLOCK = re.compile(r"(?<=```parts\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
_PARTS = {"_peers", "_interests", "_progress", "_streams", "_placing", "_addressed"}
_PARTS_OF = {"_links": "_peers"}
"""What a part has, and routers call by a name of its own."""
_FOR_ALL = {"_effects", "_read", "_refuse"}


def _function(function: Callable[..., Any]) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _parts_in(node: ast.AST, seen: frozenset[str] = frozenset()) -> list[str]:
    """The parts that a piece of the router calls, through methods of its own too, in order."""
    found: dict[str, None] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
            name = _PARTS_OF.get(part.attr, part.attr)
            if name in _PARTS:
                found[name[1:]] = None
            elif name not in seen and name not in _FOR_ALL and callable(method := getattr(KnowledgeRouter, name, None)):
                found |= dict.fromkeys(_parts_in(_function(method), seen | {name}))
    return list(found)


def _table(method: str) -> Iterator[tuple[str, ast.AST]]:
    """The rows of a table in the source: what comes in, and who takes it; what all such routers have, comes first."""
    rows: dict[str, ast.AST] = {}
    for kind in (RelayRouter, KnowledgeRouter):
        if method in vars(kind):
            (table,) = (node for node in ast.walk(_function(vars(kind)[method])) if isinstance(node, ast.Dict))
            for key, value in zip(table.keys, table.values, strict=True):
                assert key is not None
                rows[str(key.value) if isinstance(key, ast.Constant) else ast.unparse(key)] = value
    yield from rows.items()


def _messages() -> Iterator[tuple[str, ast.AST]]:
    waiting = {kind.__name__ for kind in CAN_WAIT}
    for name, value in _table("_message_handlers"):
        if name != Private.__name__:
            yield f"{name}*" if name in waiting else name, value
    for name, value in _table("_private_handlers"):
        yield f"{name.capitalize()} (private)", value


def _facts() -> Iterator[tuple[str, ast.AST]]:
    given = KnowledgeRouter().handlers()
    left_out = (RouterContext, Wake, FrameArrived)  # they are for all parts
    for kind, method in given.items():
        of_base = getattr(RouterBase, method.__name__)
        if kind not in left_out and getattr(KnowledgeRouter, method.__name__) is not of_base:
            yield kind.__name__, _function(method)


def drawing() -> str:
    """The parts, and what each of them takes."""
    taken: dict[str, list[list[str]]] = {}
    for column, rows in enumerate((_facts(), _messages(), _table("_timer_handlers"))):
        for name, value in rows:
            for part in _parts_in(value):
                taken.setdefault(part, [[], [], []])[column].append(name)
    lines = [HEADING, *((part, *map(", ".join, taken[part])) for part in sorted(taken))]
    return "".join(line for cells in lines for line in _lines(cells))


def _lines(cells: Iterable[str]) -> Iterator[str]:
    columns = [textwrap.wrap(cell, width - 2) for cell, width in zip(cells, WIDTHS, strict=True)]
    for line in zip_longest(*columns, fillvalue=""):
        yield "".join(cell.ljust(width) for cell, width in zip(line, WIDTHS, strict=True)).rstrip() + "\n"


def test_the_page_draws_the_tables_of_the_router() -> None:
    text = PAGE.read_text("utf-8")
    if REWRITE:
        PAGE.write_text(_BLOCK.sub(lambda _: drawing(), text), "utf-8")
        return

    assert _BLOCK.findall(text) == [drawing()]


def test_every_phase_of_a_link_is_drawn() -> None:
    drawn = LINKS_PAGE.read_text("utf-8").partition("```text")[2].partition("```")[0]

    assert {phase.name for phase in LinkPhase} <= set(re.findall(r"\b[A-Z]{2,}\b", drawn))

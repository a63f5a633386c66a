"""The cores import only cores and a list of pure modules, and reach nothing impure without an import either.

The import contracts forbid what is known to be impure, through helpers too; a list of bans forgets, so
this one is a list of what is allowed. To add a line, say why the module is pure.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from architecture.project import (
    Source,
    contracts,
    functions,
    imported_modules,
    is_within,
    package_sources,
    parse,
)

PURE_PACKAGES = contracts()["importlinter:contract:sans-io"]["source_modules"]

ALLOWED_STDLIB = {
    "__future__",
    "abc",
    "array",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",  # the types; reading the clock is caught below
    "decimal",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "itertools",
    "keyword",
    "math",
    "operator",
    "re",
    "reprlib",
    "string",
    "struct",
    "types",
    "typing",
    "unicodedata",
    "zlib",  # a checksum over bytes
}

ALLOWED_OTHERS = {
    "asn1crypto",  # what stands in a certificate, from its bytes
    "gapless_fast",  # four functions of bytes, if it is installed
    "google_crc32c",  # a checksum over bytes
    "msgspec",  # bytes to structs and back
}

ALLOWED_OURS = [*PURE_PACKAGES, "gapless.errors"]

ROUTER_GLUE = ["gapless.plugins"]
"""What a router imports beside cores: the mark on the factory that makes it."""

IMPURE_BUILTINS = {
    "__import__": "imports at run time",
    "breakpoint": "I/O",
    "compile": "runs text",
    "eval": "runs text",
    "exec": "runs text",
    "hash": "differs from process to process for text and bytes",
    "id": "differs from run to run",
    "input": "I/O",
    "open": "I/O",
    "print": "I/O",
}

CLOCK_METHODS = {("datetime", "now"), ("datetime", "today"), ("datetime", "utcnow"), ("date", "today")}


def impurities(source: Source) -> Iterator[str]:
    """Every line of a core that could make two runs of it differ."""
    yield from _imports(source)
    yield from _calls(source)
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            yield f"{source.at(node)}: a coroutine in a core"


def _imports(source: Source) -> Iterator[str]:
    for node in _running_code(source.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in imported_modules(node):
                if not _is_allowed(name, source):
                    yield f"{source.at(node)}: imports {name}"


def _is_allowed(name: str, source: Source) -> bool:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return top in ALLOWED_STDLIB
    if source.module.startswith("gapless_routing") and is_within(name, ROUTER_GLUE):
        return True
    return top in ALLOWED_OTHERS or is_within(name, ALLOWED_OURS)


def _running_code(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING`, which never run."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for alternative in child.orelse:
                yield from _running_code(alternative)
        else:
            yield from _running_code(child)


def _calls(source: Source) -> Iterator[str]:
    dunder_hash = [function for function in functions(source.tree) if function.name == "__hash__"]
    in_dunder_hash = {id(node) for function in dunder_hash for node in ast.walk(function)}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in IMPURE_BUILTINS and id(node) not in in_dunder_hash:
            yield f"{source.at(node)}: calls {called.id}(), which {IMPURE_BUILTINS[called.id]}"
        elif isinstance(called, ast.Attribute):
            owner = ast.unparse(called.value).rpartition(".")[2]
            if (owner, called.attr) in CLOCK_METHODS:
                yield f"{source.at(node)}: reads the clock with {owner}.{called.attr}()"


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_a_core_is_pure(package: str) -> None:
    cores = [source for source in package_sources() if is_within(source.module, [package])]

    assert cores, f"{package} holds no code"
    assert [line for source in cores for line in impurities(source)] == []


@pytest.mark.parametrize(
    "breach",
    [
        "import time",
        "import gapless",
        "from os import path",
        "import asyncio.events",
        "from gapless.node import driver",
        "def f():\n    import random",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import socket",
        "datetime.datetime.now(UTC)",
        "date.today()",
        "key = hash(topic) % 7",
        "print(1)",
        "async def f(): ...",
    ],
)
def test_a_breach_is_seen(breach: str) -> None:
    assert len(list(impurities(parse(breach)))) == 1

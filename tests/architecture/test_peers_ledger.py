"""The ledger of the peers' advisories names what is there, counts right, and what it calls absent is absent."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

import pytest

from architecture.project import ROOT, Source, functions, imported_modules, package_paths, parse, sources

PAGE: Final = (ROOT / "docs" / "security" / "peers.md").read_text("utf-8")
COLUMNS: Final[Mapping[str, int]] = {"Not possible here": 3, "Shown by a test": 4, "Not yet": 4, "Limits": 4}
"""The sections with advisories, and how many cells a line of each has."""
VERDICTS: Final[Mapping[str, str]] = {
    "not possible": "Not possible here",
    "shown by a test": "Shown by a test",
    "not yet": "Not yet",
    "limit": "Limits",
}
PROJECTS: Final[Mapping[str, str]] = {"ActiveMQ .NET": "ActiveMQ", "Apollo": "ActiveMQ"}
"""Where a project is counted whose name does not begin with what it is counted as."""
OLDER: Final = re.compile(r"^(\d+) of RabbitMQ, (\d+) of ActiveMQ, (\d+) of NATS", re.MULTILINE)

_ID = re.compile(r"CVE-20\d\d-\d{4,5}|GHSA(-[23456789cfghjmpqrvwx]{4}){3}")
_TEST = re.compile(r"`((?:tests|testing|examples)/[\w/]+\.py)::(test_\w+)`")
_FILE = re.compile(r"`((?:sdk|phb|shb|plugins|tests|testing|examples)/[\w./]+\.\w+)[`:]")

NOT_SHIPPED: Final = ("gapless_testing", "gapless_sim", "gapless_flights")
ABSENT: Final[Mapping[str, frozenset[str]]] = {
    "a web server": frozenset(
        {"aiohttp", "bottle", "cgi", "fastapi", "flask", "hypercorn", "jinja2", "mako", "socketserver", "starlette"}
        | {"tornado", "twisted", "uvicorn", "werkzeug", "wsgiref", "html", "http", "websockets", "xmlrpc"}
    ),
    "what fetches from the web": frozenset({"httpx", "requests", "urllib3"}),
    "XML": frozenset({"defusedxml", "lxml", "xml", "xmltodict"}),
    "a directory": frozenset({"ldap", "ldap3"}),
    "objects from bytes": frozenset({"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}),
    "what unpacks": frozenset({"brotli", "bz2", "cramjam", "gzip", "lz4", "lzma", "snappy", "zstandard", "zstd"}),
    "archives": frozenset({"tarfile", "zipfile"}),
    "discovery": frozenset({"zeroconf"}),
}
"""What the ledger calls absent, and the modules that would bring it. `urllib.parse` takes addresses apart, no more."""
TELLS: Final = "sdk/gapless/observe/"
"""Where HTTP is answered, if that is configured: with pages that only tell something."""
UNPACKS: Final = "plugins/log/gapless_log/kafka/unpacking.py"
"""The one file that unpacks something, up to a limit: what the producers of a Kafka topic have packed."""
CHECKSUMS: Final = frozenset({"adler32", "crc32"})
ENDLESS: Final[Mapping[str, str]] = {"gapless.plugins": "plugins that are there; for a name of none it raises"}
"""The modules that remember without a limit, and what."""


class Line(NamedTuple):
    """An advisory."""

    section: str
    advisory: str
    project: str
    rest: str


def lines() -> Iterator[Line]:
    """Every advisory, with the section that it stands in."""
    section = ""
    for text in PAGE.splitlines():
        if text.startswith("## "):
            section = text.removeprefix("## ")
        cells = [cell.strip() for cell in text.strip("|").split(" | ")]
        if text.startswith("| ") and _ID.fullmatch(cells[0]):
            assert len(cells) == COLUMNS[section], text
            assert all(cells), text
            yield Line(section, cells[0], cells[1], cells[-1])


LINES: Final = tuple(lines())


def counted(header: str) -> dict[str, int]:
    """A table of numbers that begins so."""
    rows = PAGE.partition(f"| {header} | lines |\n|---|---|\n")[2].partition("\n\n")[0]
    return {name: int(number) for name, number in re.findall(r"^\| ([\w ]+) \| (\d+) \|$", rows, re.MULTILINE)}


@cache
def defined_in(path: str) -> frozenset[str]:
    """The names of the tests in a file; empty if there is no such file."""
    file = ROOT / path
    tree = ast.parse(file.read_text("utf-8")) if file.exists() else ast.Module([], [])
    return frozenset(function.name for function in functions(tree))


def test_no_advisory_stands_there_twice() -> None:
    times = Counter(line.advisory for line in LINES)

    assert len(LINES) > 240
    assert [advisory for advisory, number in times.items() if number > 1] == []
    assert set(re.findall(r"(?:CVE-\d+-\d+|GHSA-[\w-]+)", PAGE)) == set(times)


def test_its_numbers_are_those_of_its_lines() -> None:
    projects = Counter(PROJECTS.get(line.project, line.project.split()[0]) for line in LINES)
    sections = Counter(line.section for line in LINES)

    assert counted("of") == {**projects, "together": len(LINES)}
    assert counted("here") == {verdict: sections[section] for verdict, section in VERDICTS.items()}
    listed = re.findall(r"^\| .* \| \d+ \w+ 20\d\d \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    older = OLDER.search(PAGE)
    assert older is not None
    assert sum(int(number) - int(missing) for number, missing in listed) + sum(map(int, older.groups())) == len(LINES)


def test_every_test_that_it_names_is_there() -> None:
    named = _TEST.findall(PAGE)

    assert len(named) > 80
    assert [f"{path}::{test}" for path, test in named if test not in defined_in(path)] == []
    assert all(_TEST.fullmatch(line.rest) for line in LINES if line.section == "Shown by a test")


def test_every_file_that_it_names_is_there() -> None:
    named = set(_FILE.findall(PAGE))

    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_what_is_not_there_is_found() -> None:
    """The checks of this file see a file, and a test, that do not exist."""
    assert defined_in("tests/architecture/no_such_file.py") == frozenset()
    assert "test_that_nobody_wrote" not in defined_in("tests/architecture/test_peers_ledger.py")
    assert "test_what_is_not_there_is_found" in defined_in("tests/architecture/test_peers_ledger.py")


# --------------------------------------------------------------------------------- what is called absent


def shipped() -> Iterator[Source]:
    """The code that a broker or a client runs."""
    for path in package_paths():
        if path.name not in NOT_SHIPPED:
            yield from sources(path)


def brought(source: Source) -> Iterator[str]:
    """What a file imports of that which is not to be there."""
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in imported_modules(node):
                top = name.partition(".")[0]
                yield from (f"{source.at(node)}: {name}: {what}" for what, names in ABSENT.items() if top in names)
                if name == "urllib.request":
                    yield f"{source.at(node)}: {name}: what fetches from the web"
            if isinstance(node, ast.ImportFrom) and node.module == "zlib":
                others = {alias.name for alias in node.names} - CHECKSUMS
                yield from (f"{source.at(node)}: zlib.{name}: what unpacks" for name in others)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "zlib" and node.attr not in CHECKSUMS:
            yield f"{source.at(node)}: zlib.{node.attr}: what unpacks"


def endless(source: Source) -> Iterator[str]:
    """Where a file remembers without a limit whatever it is given: names that are interned, caches of arguments."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            limits = [ast.unparse(argument) for argument in (*node.args, *(word.value for word in node.keywords))]
            if called == "intern" or (called == "lru_cache" and "None" in limits):
                yield source.at(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            takes = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if takes and any(ast.unparse(each).rpartition(".")[2] == "cache" for each in node.decorator_list):
                yield source.at(node)


def test_what_is_not_here_is_not_imported() -> None:
    found = [line for source in shipped() for line in brought(source)]

    known = ((UNPACKS, "what unpacks"), (TELLS, "a web server"))
    assert [line for line in found if not any(line.startswith(at) and line.endswith(what) for at, what in known)] == []
    assert all(any(line.startswith(at) for line in found) for at, _ in known), "what is known is seen"


def test_no_cache_is_without_a_limit() -> None:
    found = {source.module: list(endless(source)) for source in shipped()}

    assert {module: places for module, places in found.items() if places and module not in ENDLESS} == {}
    assert all(found[module] for module in ENDLESS)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import http.server", "a web server"),
        ("from xml.etree import ElementTree", "XML"),
        ("import urllib.request", "what fetches from the web"),
        ("import zlib\nzlib.decompress(b'')", "what unpacks"),
        ("from zlib import decompressobj", "what unpacks"),
        ("import tarfile", "archives"),
    ],
)
def test_a_breach_is_seen(text: str, what: str) -> None:
    assert [line.endswith(what) for line in brought(parse(text))] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "sys.intern(name)",
        "@functools.cache\ndef remembered(name): ...",
        "@lru_cache(maxsize=None)\ndef remembered(name): ...",
        "@lru_cache(None)\ndef remembered(name): ...",
    ],
)
def test_what_remembers_without_end_is_seen(text: str) -> None:
    assert list(endless(parse(text)))


def test_what_has_a_limit_is_let_be() -> None:
    text = (
        "@lru_cache(maxsize=9)\ndef remembered(name): ...\n@cache\ndef made_once(): ...\nimport zlib\nzlib.crc32(b'')"
    )

    assert [*endless(parse(text)), *brought(parse(text))] == []

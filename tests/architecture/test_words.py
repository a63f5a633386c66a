"""Words of our own stand in the glossary: those that a module introduces, and the names of packages of cores."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from architecture.project import ROOT, Source, package_sources, parse, pyproject

GLOSSARY = ROOT / "docs" / "protocol" / "glossary.md"

CORES = ("gapless.core", "gapless_phb.core", "gapless_shb.core", "gapless_routing", "gapless_sim")
"""Below these the name of each package is a word of ours."""

ORDINARY: Mapping[str, str] = {
    "after": "emphasis",
    "before": "emphasis",
    "other": "emphasis",
    "fail": "what a slot does, explained in the sentence that says it",
    "flexible": "Kafka's word for a form of its messages",
    "unknown": "SQL's third truth value",
    "values": "a method of rocksdict",
    "when": "emphasis",
    "start": "a command of the simulator's scripts",
    "network": "a command of the simulator's scripts, too",
    "cli": "the command line",
    "common": "what several share",
    "consuming": "what a consumer does",
    "messages": "what is sent",
    "publishing": "what a publisher does",
    "recording": "what a trace is made by",
    "search": "looking for a run that fails",
    "state": "what is remembered",
}
"""Words that mean what they mean everywhere, or to everybody who knows what is spoken of; and why each is here."""

_INTRODUCED = re.compile(r"`(?P<first>[^`\n]+)`:|(?<![\w*`])\*(?P<second>\w[^*\n]*)\*(?![\w*])")
_WORD = re.compile(r"[a-zA-Z_]+( [a-z_]+)?")


@cache
def glossary() -> frozenset[str]:
    """The words that the glossary explains, in small letters and without what stands in brackets behind them."""
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    words = (word for row in rows for word in re.sub(r"\([^)]*\)", "", row).split(","))
    return frozenset(word.strip().casefold() for word in words)


@cache
def chosen() -> frozenset[str]:
    """Names by which options choose a plugin, a role or a workload: each is explained where the option is."""
    plugins = {name for group in pyproject()["project"]["entry-points"].values() for name in group}
    workloads = {path.stem for path in (ROOT / "testing" / "gapless_sim" / "workloads").glob("*.py")}
    return frozenset(plugins | workloads | {"anonymous"})


def introduced(source: Source) -> Iterator[str]:
    """The words that a module's docstring introduces, as "`word`:" or as "*word*"."""
    for match in _INTRODUCED.finditer(ast.get_docstring(source.tree) or ""):
        word = match["first"] or match["second"].rstrip(".").lower()
        if _WORD.fullmatch(word) and word[0].islower() and word.split()[0] != "gapless":  # no class, and no command
            yield word


def packages(sources: tuple[Source, ...]) -> Iterator[str]:
    """The names of the packages below the cores."""
    for source in sources:
        if source.path.stem == "__init__" and any(source.module.startswith(f"{core}.") for core in CORES):
            yield source.module.rpartition(".")[2]


def is_explained(word: str) -> bool:
    """Whether the glossary has a word, in the singular or the plural, or under the verb that it is a form of."""
    plain = word.replace("_", " ").casefold()
    forms = {plain, plain.removesuffix("s"), plain.removesuffix("es"), plain.replace("catch up", "catchup")}
    return bool(forms & glossary())


def fields(source: Source) -> frozenset[str]:
    """The modules of a package, which the docstring of the package may list."""
    return frozenset(path.stem for path in Path(source.path).parent.iterdir()) if is_package(source) else frozenset()


def is_package(source: Source) -> bool:
    """Whether a file stands for its package."""
    return source.path.stem == "__init__"


def unexplained(source: Source) -> list[str]:
    """The words that a module introduces, and nobody explains."""
    return sorted(
        {
            word
            for word in introduced(source)
            if word not in ORDINARY and word not in chosen() | fields(source) and not is_explained(word)
        }
    )


def test_what_a_module_introduces_stands_in_the_glossary() -> None:
    assert {source.module: words for source in package_sources() if (words := unexplained(source))} == {}


def test_the_name_of_each_package_below_the_cores_stands_in_the_glossary() -> None:
    named = set(packages(package_sources()))

    assert sorted(word for word in named - ORDINARY.keys() - chosen() if not is_explained(word)) == []
    assert {"total_order", "catch_up", "foreign_log", "oracles"} <= named


@pytest.mark.parametrize("word", ORDINARY)
def test_an_exception_is_still_needed(word: str) -> None:
    used = {*packages(package_sources()), *(word for source in package_sources() for word in introduced(source))}

    assert word in used


def test_a_word_that_nobody_explains_would_be_seen() -> None:
    source = parse(
        '"""A *zwork* is new. `frobs`: what it has. *Flurbs.* A *tick* is known; **bold**, `other` are not."""'
    )

    assert unexplained(source) == ["flurbs", "frobs", "zwork"]

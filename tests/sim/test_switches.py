"""The catalogue of switches, and the edits that they are made of: that each still does what it says.

Whether the simulator finds what a switch breaks is another test's business.
"""

from __future__ import annotations

import builtins
import dis
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import gapless
from sim.switches.catalogue import NOT_APPLICABLE, RULES, SECTIONS, SWITCHES, TRAPS, switch_named
from sim.switches.edits import Edit, EditError, Replace, applied, function_of, source_of
from sim.switches.switch import Switch

ORACLE = re.compile(
    r"A1|I([1-9]|1[0-2])|J([1-5]|1[0-2])|V[1-4]|K([1-9]|1[0-2])|D[1-9]|KI[1-9]|C([1-9]|10)|R1|cores|P[12]|L1|N[12]|X[1-3]|U03"
)

# ------------------------------------------------------------------------------------- the catalogue


def names(switch: Switch) -> str:
    return switch.name


@pytest.mark.parametrize("switch", SWITCHES, ids=names)
def test_a_switch_applies_and_leaves_no_trace(switch: Switch) -> None:
    functions = [function_of(edit.target) for edit in switch.edits]
    before = [function.__code__ for function in functions]

    with switch.applied():
        assert all(function.__code__ is not code for function, code in zip(functions, before, strict=True))
        for edit, function in zip(switch.edits, functions, strict=True):
            assert edit.made in source_of(function)

    assert all(function.__code__ is code for function, code in zip(functions, before, strict=True))


@pytest.mark.parametrize("switch", SWITCHES, ids=names)
def test_an_edited_function_uses_only_names_that_are_there(switch: Switch) -> None:
    """What compiles may still fail at its first call, for a name that the module does not have."""
    with switch.applied():
        missing = [name for edit in switch.edits for name in sorted(unknown_names(function_of(edit.target)))]

    assert missing == []


def unknown_names(function: FunctionType) -> set[str]:
    """The global names of a function, and of the functions in it, that neither its module nor Python knows."""
    known = {*function.__globals__, *vars(sys.modules["builtins"])}
    return {name for name in global_names(function.__code__) if name not in known}


def global_names(code: Any) -> Iterator[str]:
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"})
    for inner in code.co_consts:
        if isinstance(inner, type(code)):
            yield from global_names(inner)


@pytest.mark.parametrize("switch", SWITCHES, ids=names)
def test_an_edited_function_uses_only_attributes_that_are_there(switch: Switch) -> None:
    """An edit was out of date: its runs failed for an attribute that had been renamed, and nothing else was tried."""
    functions = [function_of(edit.target) for edit in switch.edits]
    before = [set(attributes(function.__code__)) for function in functions]

    with switch.applied():
        made = {name for function in functions for name in attributes(function.__code__, "STORE_ATTR")}
        for function, old in zip(functions, before, strict=True):
            new = {*attributes(function.__code__)} - old - made
            assert new <= words_of_package(function.__module__) | OF_BUILTINS, function.__qualname__


OF_BUILTINS = {name for kind in vars(builtins).values() if isinstance(kind, type) for name in dir(kind)}


def attributes(code: Any, *opnames: str) -> Iterator[str]:
    """The attributes that a function, and the functions in it, read or set."""
    wanted = opnames or ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in wanted)
    for inner in code.co_consts:
        if isinstance(inner, type(code)):
            yield from attributes(inner, *opnames)


@cache
def words_of_package(module: str) -> set[str]:
    """The words of a module's package, of the modules that it has something from, and the public words of the SDK.

    Of a module of the SDK: those of the modules beside it.
    """
    of_others = {getattr(value, "__module__", None) or "" for value in vars(sys.modules[module]).values()}
    others = [Path(sys.modules[name].__file__ or "") for name in of_others if name.startswith("gapless")]
    public = {word for word in words(*Path(gapless.__file__).parent.rglob("*.py")) if word[0] != "_"}
    package, beside = module.split(".", maxsplit=1)[0], Path(sys.modules[module].__file__ or "").parent
    own = (
        beside.glob("*.py") if package == "gapless" else Path(sys.modules[package].__file__ or "").parent.rglob("*.py")
    )
    return words(*own, *others) | public


def words(*files: Path) -> set[str]:
    return {word for file in files for word in re.findall(r"\w+", file.read_text("utf-8"))}


def test_every_trap_and_every_rule_has_a_switch_or_a_reason_why_not() -> None:
    broken = {rule for switch in SWITCHES for rule in switch.breaks}

    assert broken | NOT_APPLICABLE.keys() == {*TRAPS, *RULES, *SECTIONS}
    assert broken & NOT_APPLICABLE.keys() == set()


def test_a_switch_says_who_is_to_find_it_and_how() -> None:
    assert [name for name, count in Counter(map(names, SWITCHES)).items() if count > 1] == []
    for switch in SWITCHES:
        assert switch.oracle, switch.name
        assert all(ORACLE.fullmatch(oracle) for oracle in switch.oracle), switch.name
        assert switch.wrong.endswith("."), switch.name
        assert switch.needs.endswith("."), switch.name


def test_a_switch_is_found_by_its_name() -> None:
    assert switch_named("no_reservation") is SWITCHES[0]
    with pytest.raises(KeyError):
        switch_named("no_such_switch")


# ---------------------------------------------------------------------------------------- the edits

SAMPLE = '''\
"""Something to edit."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

FACTOR = 2


def double(number: int, extra: Missing = 0) -> int:
    return number * FACTOR + extra


def described(number: int) -> str:
    """What it is."""
    return f"it is {number}"


class Base:
    def greet(self) -> str:
        return "base"


@dataclass(slots=True)
class Point:
    x: int
    _y: int = 5

    @property
    def doubled(self) -> int:
        return self.x * 2

    @staticmethod
    def unit() -> str:
        return "metre"

    @classmethod
    def origin(cls) -> Point:
        return cls(0)

    def adder(self):
        def add(number: int) -> int:
            return self.x + number

        return add


class Heir(Base):
    __secret = "hidden"

    def greet(self) -> str:
        return super().greet() + " and heir"

    def reveal(self) -> str:
        return "it is " + self.__secret

    @cached_property
    def slow(self) -> int:
        return 1

    @contextmanager
    def lent(self):
        yield "lent"
'''


@dataclass
class Sample:
    """A module to edit, and one that has imported a name from it."""

    module: Any
    user: Any


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sample]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "edited_sample.py").write_text(SAMPLE)
    (tmp_path / "edited_user.py").write_text("from edited_sample import double\n\nTABLE = {'double': double}\n")
    module: ModuleType = __import__("edited_sample")
    user: ModuleType = __import__("edited_user")
    yield Sample(module, user)
    del sys.modules["edited_sample"], sys.modules["edited_user"]


def edit(path: str, old: str, new: str) -> Edit:
    return Edit(f"edited_sample:{path}", old, new)


def test_whoever_has_imported_a_function_runs_the_edited_one(sample: Sample) -> None:
    bound = sample.module.Heir().greet
    edits = [edit("double", "* FACTOR", "* FACTOR * 10"), edit("Heir.greet", "and heir", "and others")]

    with applied(edits):
        assert sample.user.double(3) == sample.user.TABLE["double"](3) == sample.module.double(3) == 60
        assert bound() == "base and others"

    assert sample.user.double(3, extra=1) == 7
    assert bound() == "base and heir"


@pytest.mark.parametrize(
    ("path", "old", "new", "call", "result"),
    [
        ("Point.doubled", "* 2", "* 3", lambda module: module.Point(4).doubled, 12),
        ("Point.unit", "metre", "mile", lambda module: module.Point.unit(), "mile"),
        ("Point.origin", "cls(0)", "cls(7)", lambda module: module.Point.origin().x, 7),
        ("Point.adder", "self.x + number", "self.x - number", lambda module: module.Point(4).adder()(1), 3),
        ("Heir.reveal", "it is ", "psst: ", lambda module: module.Heir().reveal(), "psst: hidden"),
        ("Heir.slow", "return 1", "return 2", lambda module: module.Heir().slow, 2),
        ("Heir.lent", '"lent"', '"kept"', lambda module: module.Heir().lent().__enter__(), "kept"),
    ],
)
def test_what_wraps_a_function_stays(sample: Sample, path: str, old: str, new: str, call: Any, result: object) -> None:
    before = call(sample.module)

    with edit(path, old, new).applied():
        assert call(sample.module) == result

    assert call(sample.module) == before != result


def test_edits_of_one_function_add_up(sample: Sample) -> None:
    with edit("double", "* FACTOR", "* 5").applied():
        with edit("double", "* 5", "* 6").applied():
            assert sample.module.double(1) == 6
        assert sample.module.double(1) == 5
        with pytest.raises(EditError, match="occurs 0 times"), edit("double", "FACTOR", "7").applied():
            pass
    assert sample.module.double(1) == 2


@pytest.mark.parametrize(
    ("path", "body", "call", "result"),
    [
        ("double", "return FACTOR - number", lambda module: module.double(4), -2),
        ("Heir.reveal", "it = self.__secret\nreturn it", lambda module: module.Heir().reveal(), "hidden"),
        ("Heir.greet", "return super().greet()", lambda module: module.Heir().greet(), "base"),
        ("Point.doubled", "return 0", lambda module: module.Point(4).doubled, 0),
        ("described", "return number", lambda module: module.described(4), 4),
    ],
)
def test_a_decision_is_replaced_whatever_it_was(sample: Sample, path: str, body: str, call: Any, result: Any) -> None:
    before = call(sample.module)

    with Replace(f"edited_sample:{path}", body).applied():
        assert call(sample.module) == result

    assert call(sample.module) == before != result


@pytest.mark.parametrize(
    ("body", "reason"), [("return number * (", "not Python"), ("return number * FACTOR + extra", "changes")]
)
def test_a_replacement_that_does_not_fit_is_refused(sample: Sample, body: str, reason: str) -> None:
    with pytest.raises(EditError, match=reason), Replace("edited_sample:double", body).applied():
        pass
    assert sample.module.double(1) == 2


def test_when_one_edit_cannot_be_made_none_is(sample: Sample) -> None:
    with pytest.raises(EditError), applied([edit("double", "FACTOR", "9"), edit("Base.greet", "nothing", "")]):
        pass
    assert sample.module.double(1) == 2


def test_a_function_is_itself_again_after_an_exception(sample: Sample) -> None:
    with pytest.raises(ZeroDivisionError), edit("double", "* FACTOR", "// 0").applied():
        sample.module.double(1)
    assert sample.module.double(1) == 2


def test_a_traceback_shows_the_line_of_the_file(sample: Sample) -> None:
    with edit("double", "* FACTOR", "// 0").applied(), pytest.raises(ZeroDivisionError) as caught:
        sample.module.double(1)
    assert str(caught.traceback[-1].path).endswith("edited_sample.py")
    assert "return number" in SAMPLE.splitlines()[caught.traceback[-1].lineno]


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        ("triple", "x", "y", "no 'triple'"),
        ("Point.area", "x", "y", "no 'area'"),
        ("Point.x", "x", "y", "not a function"),
        ("FACTOR", "2", "3", "not a function"),
        ("double", "FACTOR + 1", "0", "occurs 0 times"),
        ("double", "number", "count", "occurs 2 times"),
        ("double", "FACTOR", "FACTOR", "changes nothing"),
        ("double", "* FACTOR", "* (", "not Python"),
        ("double", "extra: Missing = 0", "extra: Missing = 1", "how it is called"),
        ("Base.greet", 'return "base"', "return super().__repr__()", "needs"),
    ],
)
def test_an_edit_that_no_longer_fits_is_refused(sample: Sample, path: str, old: str, new: str, reason: str) -> None:
    with pytest.raises(EditError, match=reason), edit(path, old, new).applied():
        pass
    assert sample.module.double(1) == 2


@pytest.mark.parametrize("above", ["LATER = 3\n", "def other() -> int:\n    return 0\n\n\n"])
def test_a_file_that_changed_after_its_import_is_refused(sample: Sample, tmp_path: Path, above: str) -> None:
    """What the file says now is not what runs: an edit of it would put other code there."""
    (tmp_path / "edited_sample.py").write_text(SAMPLE.replace("def double", above + "def double").replace("* 2", "* 4"))

    with pytest.raises(EditError), edit("Point.doubled", "self.x", "self.y").applied():
        pass
    assert sample.module.Point(3).doubled == 6


def test_a_module_that_is_gone_is_refused() -> None:
    with pytest.raises(EditError, match="no such module"), Edit("gapless.gone:f", "a", "b").applied():
        pass

"""Edits of production code, in this process and for a while: how a rule is broken on purpose.

Production code has no switches. So a test that wants to know whether the simulator would notice a broken
rule breaks it in the source: it takes the text of one function, replaces a fragment of it, compiles the
result, and gives the function that code until the test is over.

The function object stays the one it is and only its code is exchanged. So everybody who holds it, under
whatever name he imported it, in a table of handlers or as a method bound long ago, runs the edited code;
properties, static methods, class methods and classes with slots need no care.

A switch must never be disarmed in silence. An edit whose target is gone, or whose fragment does not occur
exactly once, raises EditError.
"""

from __future__ import annotations
import __future__

import ast
import inspect
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from textwrap import dedent, indent
from types import CodeType, FunctionType


class EditError(Exception):
    """The production code is not what the edit was written for."""


@dataclass(frozen=True, slots=True)
class Change:
    """One function, changed. `target` is `module:function` or `module:Class.method`."""

    target: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The function is edited while this lasts. Edits of one function may be nested, also in themselves."""
        function = function_of(self.target)
        code, text = function.__code__, _edited.get(function)
        present = source_of(function)
        if text is None and not _is_same(code, _compiled(self.target, function, present)):
            raise EditError(f"{self.target}: the file has changed since it was imported")
        source = self._replaced(present)
        function.__code__ = _compiled(self.target, function, source)
        _edited[function] = source
        try:
            yield
        finally:
            function.__code__ = code
            del _edited[function]
            if text is not None:
                _edited[function] = text

    @property
    def made(self) -> str:
        """What stands in the source while this is applied."""
        raise NotImplementedError

    def _replaced(self, source: str) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Replace(Change):
    """A function that is one decision, decided otherwise: `body` is all that it does, whatever it did before.

    It stands at the left margin, and knows the parameters of the function and the names of its module.
    """

    body: str

    @property
    def made(self) -> str:
        """The new body."""
        return indent(self.body, "    ")

    def _replaced(self, source: str) -> str:
        definition = _definition(self.target, source)
        first = definition.body[ast.get_docstring(definition) is not None]
        head = source.splitlines()[: first.lineno - 1]
        replaced = "\n".join(head) + "\n" + self.made + "\n"
        if ast.dump(_definition(self.target, replaced)) == ast.dump(_definition(self.target, source)):
            raise EditError(f"{self.target}: the edit changes nothing")
        return replaced


@dataclass(frozen=True, slots=True)
class Edit(Change):
    """One fragment of a function, replaced: for a function that does more than decide.

    `old` and `new` are parts of its source with the indentation that it has when the function stands at the left
    margin. `old` occurs there exactly once.
    """

    old: str
    new: str

    @property
    def made(self) -> str:
        """The new fragment."""
        return self.new

    def _replaced(self, source: str) -> str:
        count = source.count(self.old)
        if count != 1:
            raise EditError(f"{self.target}: the fragment occurs {count} times, not once:\n{self.old}")
        if self.old == self.new:
            raise EditError(f"{self.target}: the edit changes nothing")
        return source.replace(self.old, self.new)


_edited: dict[FunctionType, str] = {}
"""The present source of each function that is being edited."""


@contextmanager
def applied(edits: Iterable[Change]) -> Iterator[None]:
    """All of these edits are made while this lasts; when one cannot be, none is."""
    with ExitStack() as stack:
        for edit in edits:
            stack.enter_context(edit.applied())
        yield


def function_of(target: str) -> FunctionType:
    """The function that a target names, out of whatever wraps it. Raises EditError if there is none."""
    module, _, path = target.partition(":")
    try:
        found: object = import_module(module)
    except ImportError as error:
        raise EditError(f"{target}: there is no such module") from error
    for name in path.split("."):
        try:
            found = inspect.getattr_static(found, name)
        except AttributeError as error:
            raise EditError(f"{target}: there is no {name!r}") from error
    function = _unwrapped(found)
    if not isinstance(function, FunctionType):
        raise EditError(f"{target}: not a function written in Python, but {found!r}")
    return function


def _unwrapped(found: object) -> object:
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    elif isinstance(found, cached_property):
        found = found.func
    return inspect.unwrap(found) if callable(found) else found


def source_of(function: FunctionType) -> str:
    """The present source of a function, at the left margin."""
    return _edited.get(function) or dedent(inspect.getsource(function))


def _compiled(target: str, function: FunctionType, source: str) -> CodeType:
    """The code of a function with this source, in the place of the present one.

    The line numbers stay those of the file, so that a traceback is about right. The class around it is
    there for what depends on it: private names, and `super()`. So are the imports before it: a call of what
    is imported is compiled in another way.
    """
    old = function.__code__
    definition = _definition(target, source)
    if _signature(definition) != _signature(_definition(target, source_of(function))):
        raise EditError(f"{target}: an edit may change what a function does, not how it is called")
    if definition.name != old.co_name:
        raise EditError(f"{target}: the file has changed since it was imported")
    body: list[ast.stmt] = [definition]
    owner = function.__qualname__.split(".")[-2:-1]
    if owner:
        (around,) = ast.parse(f"class {owner[0]}: pass").body
        assert isinstance(around, ast.ClassDef)
        around.body = body
        body = [around]
    tree = ast.Module([*_imports(old.co_filename), *body], [])
    ast.increment_lineno(definition, old.co_firstlineno - 1)
    flags = old.co_flags & __future__.annotations.compiler_flag
    whole = compile(ast.fix_missing_locations(tree), old.co_filename, "exec", flags=flags, dont_inherit=True)
    code = _code_named(old.co_name, whole)
    if code.co_freevars != old.co_freevars:
        raise EditError(f"{target}: the edited function needs {code.co_freevars} around it, not {old.co_freevars}")
    return code


@cache
def _imports(path: str) -> tuple[ast.stmt, ...]:
    module = ast.parse(Path(path).read_text("utf-8"))
    future = "__future__"  # which is said to the compiler by a flag
    return tuple(
        statement
        for statement in module.body
        if isinstance(statement, ast.Import) or (isinstance(statement, ast.ImportFrom) and statement.module != future)
    )


def _definition(target: str, source: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    try:
        (definition,) = ast.parse(source).body
    except SyntaxError as error:
        raise EditError(f"{target}: the edited source is not Python: {error}\n{source}") from error
    assert isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)), target
    definition.decorator_list = []
    return definition


def _signature(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, str, bool]:
    return definition.name, ast.dump(definition.args), isinstance(definition, ast.AsyncFunctionDef)


def _is_same(one: object, other: object) -> bool:
    """Whether two codes, or constants in them, are the same, wherever they were compiled."""
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return (
            (one.co_code, one.co_names, one.co_varnames) == (other.co_code, other.co_names, other.co_varnames)
            and len(one.co_consts) == len(other.co_consts)
            and all(map(_is_same, one.co_consts, other.co_consts))
        )
    if isinstance(one, str) and isinstance(other, str):
        # The lines of a docstring are indented otherwise; and before Python 3.11 an inner function has its
        # qualified name as a constant beside it.
        return one.split() == other.split() or "<locals>" in one
    return one == other


def _code_named(name: str, code: CodeType) -> CodeType:
    """The code of the function, in the module's code or in that of the class around it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return next((found for found in inner if found.co_name == name), None) or _code_named(name, inner[0])

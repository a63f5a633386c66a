"""The authorizer `rules`: from tables [[allow]] and [[deny]], of the node's configuration or of a file, to `Rules`.

All of it is checked when it is read. Whatever is wrong is named with its file, its table and the line of that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gapless.core.ports import Action, Authorizer
from gapless.errors import ConfigurationError, InvalidTopicError
from gapless.plugins import hookimpl
from gapless.security.file_state import FileState, state_of
from gapless.security.rules import EVERYBODY, GROUP, Rule, Rules
from gapless.selectors.topics import check_new_patterns, check_pattern, looks_foreign
from gapless.settings import read_toml, suggestion
from gapless.texts import name_problem

KINDS: Final = ("allow", "deny")
KEYS: Final = ("who", "actions", "topics", "names", "client_ids", "publishers")
OF_TOPICS: Final = frozenset({Action.PUBLISH, Action.SUBSCRIBE, Action.OBSERVE})
"""The actions that `topics` narrows."""
OF_DURABLES: Final = frozenset({Action.CONSUME, Action.MANAGE, Action.OBSERVE})
"""The actions that `names` and `client_ids` narrow."""
NO_RULE: Final = "there is no rule in it, and so nothing would be allowed to anybody; write at least one [[allow]]"


class _Problems(Exception):  # noqa: N818 - it is raised and caught here alone
    """Sentences about one table."""

    def __init__(self, *problems: str) -> None:
        super().__init__()
        self.problems = problems


def rules_of(tables: Mapping[str, Any], source: str, lines: Mapping[str, Sequence[int]]) -> Rules:
    """Returns the rules of the tables [[allow]] and [[deny]].

    `lines`: of each kind the line of each table, as far as that is known. Raises ConfigurationError with a line for
    each thing that is wrong.
    """
    rules: list[Rule] = []
    problems: list[str] = []
    warnings: list[str] = []
    for kind in KINDS:
        found = tables.get(kind, ())
        if not isinstance(found, (list, tuple)):
            problems.append(f"{source}: {kind}: write it as [[{kind}]], for there may be several of them")
            continue
        known = lines.get(kind, ())
        for number, table in enumerate(found, 1):
            line = f" (line {known[number - 1]})" if len(known) == len(found) else ""
            place = f"{source}: [[{kind}]] {number}{line}"
            try:
                rule = _rule(table, place, number, denies=kind == "deny")
            except _Problems as error:
                problems += [f"{place}: {problem}" for problem in error.problems]
            else:
                rules.append(rule)
                warnings += [f"{place}: {warning}" for warning in _doubts(rule)]
    if problems:
        raise ConfigurationError("\n".join(problems))
    if not rules:
        raise ConfigurationError(f"{source}: {NO_RULE}")
    return Rules(rules, warnings)


def read_rules(path: Path) -> Rules:
    """Returns the rules of a file, which has no other tables. Raises ConfigurationError."""
    tables = read_toml(path)
    for name in tables:
        if name not in KINDS:
            hint = suggestion(name, list(KINDS))
            raise ConfigurationError(f"{path}: there is no table {name!r} in a file of rules{hint}")
    return rules_of(tables, str(path), table_lines(path))


def read_configuration(path: Path) -> Rules:
    """Returns the rules of a node's configuration, whatever else that says. Raises ConfigurationError."""
    return rules_of(read_toml(path), str(path), table_lines(path))


class RulesOfFile(Rules):
    """The rules of a file as it was once read, and what follows them when it has changed.

    Whoever writes a file may be in the middle of it, and the part that is there may be rules, too: too few. So a change
    counts once the file was found unchanged at two looks, one after the other.
    """

    def __init__(self, path: Path, read: Callable[[Path], Rules]) -> None:
        """Raises ConfigurationError."""
        self._path = path
        self._read = read
        self._state = self._seen = state_of(path)
        """The state of the file that these rules were read from, and the one that was seen at the last look."""
        self._unusable: tuple[FileState, str] | None = None
        """A later state that is not usable, and why."""
        found = read(path)
        super().__init__(found.rules, found.warnings)

    def successor(self) -> Authorizer | None:
        """Returns the rules of the file, if they are others now; see `gapless.spi.HasSuccessor`."""
        state, seen = state_of(self._path), self._seen
        self._seen = state
        if state == self._state:
            self._unusable = None
            return None
        if state == seen and (self._unusable is None or self._unusable[0] != state):
            try:
                newer = RulesOfFile(self._path, self._read)
            except ConfigurationError as error:
                self._unusable = state, str(error)
            else:
                if newer._state != state:  # it has changed since it was looked at
                    self._seen = newer._state
                elif newer.rules != self.rules:
                    return newer
                else:
                    self._state, self._unusable = state, None
        if self._unusable is not None:
            raise ConfigurationError(self._unusable[1])
        return None


def table_lines(path: Path) -> dict[str, list[int]]:
    """Returns at which lines of a file its tables of each kind begin; nothing if it cannot be read any more."""
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    header = re.compile(rf"\s*\[\[\s*({'|'.join(KINDS)})\s*\]\]")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return found
    for number, line in enumerate(text.splitlines(), 1):
        if match := header.match(line):
            found[match[1]].append(number)
    return found


# ----------------------------------------------------------------------------------------- a table


def _rule(table: object, place: str, number: int, *, denies: bool) -> Rule:
    """Returns the rule of a table. Raises _Problems with all that is wrong with it."""
    if not isinstance(table, Mapping):
        raise _Problems(f"it is no table: {table!r}")
    problems = [f"there is no key {key!r}{suggestion(str(key), list(KEYS))}" for key in table if key not in KEYS]
    values = {key: _texts(table, key, problems) for key in KEYS}
    actions = tuple(filter(None, (_action(name, problems) for name in values["actions"])))
    for key, check in (("who", _who_problem), ("topics", _topic_problem)):
        problems += filter(None, map(check, values[key]))
    for key in ("names", "publishers"):
        problems += (f"{key}: {each}" for each in filter(None, map(_name_problem, values[key])))
    problems += (f"client_ids: {each}" for each in filter(None, map(_client_id_problem, values["client_ids"])))
    if not problems:
        problems += _misfits(values, frozenset(actions), denies=denies)
    if problems:
        raise _Problems(*problems)
    more = values["topics"], values["names"], values["client_ids"], values["publishers"]
    return Rule(place, number, denies, values["who"], actions, *more)


def _texts(table: Mapping[str, object], key: str, problems: list[str]) -> tuple[str, ...]:
    """The texts of a key; one text stands for a list of it."""
    if key not in table:
        if key in {"who", "actions"}:
            problems.append(f"{key} is missing")
        return ()
    value = table[key]
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        problems.append(f"{key}: it is a list of texts, not {value!r}")
        return ()
    if not texts:
        problems.append(f"{key}: the list is empty, so the rule would be for nothing")
    return tuple(texts)


def _action(name: str, problems: list[str]) -> Action | None:
    known = [action.value for action in Action]
    if name in known:
        return Action(name)
    problems.append(f"actions: there is no action {name!r}{suggestion(name, known)}; there are {', '.join(known)}")
    return None


def _who_problem(who: str) -> str:
    if not who:
        return 'who: an empty name; "*" is everybody, "anonymous" who has not said'
    return f"who: {who!r} names no group" if who == GROUP else ""


def _topic_problem(pattern: str) -> str:
    try:
        check_pattern(pattern)
        check_new_patterns([pattern])
    except InvalidTopicError as error:
        return f"topics: {error}"
    return ""


def _name_problem(pattern: str) -> str:
    problem = name_problem(pattern)
    return f"the pattern {pattern!r} {problem}" if problem else ""


def _client_id_problem(pattern: str) -> str:
    problem = name_problem(pattern, empty=True)  # the empty id is that of clients which give none
    return f"the pattern {pattern!r} {problem}" if problem else ""


def _misfits(values: Mapping[str, tuple[str, ...]], actions: frozenset[Action], *, denies: bool) -> Iterator[str]:
    """What of a table makes no sense together. A key that narrows less than it seems to would allow too much."""
    about_topics = sorted(action.value for action in actions & {Action.PUBLISH, Action.SUBSCRIBE})
    if values["publishers"] and Action.PUBLISH not in actions:
        yield "publishers narrows none of these actions, but publish"
    elif values["publishers"] and denies:
        if len(actions) > 1 or values["topics"]:
            yield "publishers denies names, whatever is published: give that a table of its own, for publish alone"
    elif about_topics and not values["topics"]:
        yield f'topics is missing, which {about_topics[0]} needs; "#" is all of them'
    if values["topics"] and not actions & OF_TOPICS:
        yield "topics narrows none of these actions, but publish, subscribe and observe"
    if values["topics"] and Action.MANAGE in actions:
        yield "topics does not narrow manage: give that a table of its own"
    narrow = [key for key in ("names", "client_ids") if values[key]]
    if narrow and not actions & OF_DURABLES:
        yield f"{narrow[0]} narrows none of these actions, but consume, manage and observe"
    if denies and values["topics"] and Action.CONSUME in actions and not narrow:
        yield "topics does not narrow consume: give that a table of its own, or nothing at all could be consumed"


def _doubts(rule: Rule) -> Iterator[str]:
    """What is no mistake for sure."""
    for pattern in rule.topics:
        if meant := looks_foreign(pattern):
            yield f"topics: {pattern!r} has no wildcard here; as other systems write it, it would be {meant!r}"
    if len(rule.who) > 1 and EVERYBODY in rule.who:
        yield f'who: "{EVERYBODY}" is everybody, so the others beside it say nothing'


# ----------------------------------------------------------------------------------------- the plugin


@hookimpl
def open_acl(options: Mapping[str, Any]) -> Authorizer:
    """The rules of a `file`; or of the tables `allow` and `deny` that stand in `source`. Raises ConfigurationError.

    The node gives the tables of its configuration, and where that was read from. Whichever file the rules stand in is
    watched: other rules count some seconds after they were written.
    """
    tables = {kind: options[kind] for kind in KINDS if options.get(kind)}
    for key in options:
        if key not in {"file", "source", *KINDS}:
            raise ConfigurationError(f"the authorizer 'rules' has no option {key!r}{suggestion(key, ['file'])}")
    file, source = options.get("file"), str(options.get("source", ""))
    if file is None:
        return _of_configuration(tables, source)
    if not isinstance(file, str) or not file:
        raise ConfigurationError(f"file: it is the path of a file of rules, not {file!r}")
    if tables:
        kind = next(iter(tables))
        raise ConfigurationError(
            f"file: there are rules in {file}, and [[{kind}]] here as well: only one of the two may have them, or"
            " nobody would know which counts"
        )
    return RulesOfFile(Path(file), read_rules)


def _of_configuration(tables: Mapping[str, Any], source: str) -> Rules:
    """The rules of a node's configuration: of the file that they stand in, if they stand there as they are given."""
    if not source:
        return rules_of(tables, "configuration", {})
    path = Path(source)
    given = rules_of(tables, source, table_lines(path))
    try:
        watched = RulesOfFile(path, read_configuration)
    except ConfigurationError:
        watched = None
    if watched is not None and watched.name == given.name:
        return watched
    if not path.exists():
        return given  # whoever has made this configuration has not read it from a file
    doubt = f"{source}: other rules count than stand there, as variables of the environment say some: what changes"
    return Rules(given.rules, [*given.warnings, f"{doubt} there counts after a restart"])

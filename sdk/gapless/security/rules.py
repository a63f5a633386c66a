"""Rules about who may do what: the authorizer `rules`, which the tables [[allow]] and [[deny]] make.

A question is decided in three steps:

1. The rules that are for the principal are found: by its name, by its groups, and those for everybody.
2. One [[allow]] has to cover all of what is asked for. Without one it is refused: nothing is allowed by itself.
3. No [[deny]] may take any of it away: a refusal beats what is allowed, whichever stands first.

`docs/reference/rules.md` says of each action what covers it. Pure: a decision follows from the rules and the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Final, TypeAlias

from msgspec import Struct

from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.core.resources import AnyTopic, Durable, Publisher, Resource
from gapless.core.wire.messages.users import NOBODY_IN_PARTICULAR
from gapless.security.names import group_problem, user_problem
from gapless.selectors.topics import PatternTree, pattern_covers

EVERYBODY: Final = "*"
EVERYTHING: Final = "*"
GROUP: Final = "group:"
DECISIONS_MAX: Final = 8192
"""So many decisions are kept about topics, which are asked about with every batch."""
SELDOM_MAX: Final = 1024
"""So many about the rest: of a hundred thousand durable subscriptions each is asked about once when rules change."""
LENGTH_MAX: Final = 1024
"""A decision about something longer is not kept."""
TOPIC: Final = "topic "
"""What stands before a pattern of a pubend, where that is observed."""
LISTINGS: Final = ("subscriptions", "pubends")
"""Listings in which each row is decided about by itself."""


class Rule(Struct, frozen=True, gc=False):
    """A table [[allow]] or [[deny]], checked. An empty tuple says nothing, where something may be left out."""

    place: str
    """Where it stands, for people."""
    number: int
    """Of the tables of its kind, from 1."""
    denies: bool
    who: tuple[str, ...]
    actions: tuple[Action, ...]
    topics: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The name of its table."""
        return "deny" if self.denies else "allow"

    @property
    def names_durables(self) -> bool:
        """Whether it is for some durable subscriptions alone: `*` names all of them."""
        return any(patterns and EVERYTHING not in patterns for patterns in (self.names, self.client_ids))

    @property
    def names_nothing(self) -> bool:
        """Whether it is for everything that its actions are about."""
        return not self.names_durables and (not self.topics or "#" in self.topics)


class Decision(Struct, frozen=True, gc=False):
    """The answer to a question, and why."""

    allowed: bool
    rule: Rule | None
    """Which one decides; None: there is none that allows it."""
    text: str
    """For the principal, if it is refused; it says nothing of what there is. For the operator it names the rule."""


def text_matches(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern, in which `*` stands for any text, also none."""
    first, *parts = pattern.split("*")
    if not parts:
        return pattern == text
    last = parts.pop()
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in parts:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def is_own(principal: Principal, client_id: str) -> bool:
    """Whether a client id is the name of a principal, alone or before a `-`."""
    return client_id == principal.name or client_id.startswith(f"{principal.name}-")


class _Share:
    """The rules of one kind for one name, one group, or everybody. What an action needs is laid out once it is used."""

    __slots__ = ("_of", "_trees", "rules")

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self._of: dict[Action, list[Rule]] = {}
        self._trees: dict[Action, PatternTree[Rule]] = {}

    def of(self, action: Action) -> list[Rule]:
        """Those for an action, in their order."""
        if action not in self._of:
            self._of[action] = [rule for rule in self.rules if action in rule.actions]
        return self._of[action]

    def tree(self, action: Action) -> PatternTree[Rule]:
        """Those for an action by their topics; of several with one pattern the first."""
        if action not in self._trees:
            first: dict[str, Rule] = {}
            for rule in self.of(action):
                for pattern in rule.topics:
                    first.setdefault(pattern, rule)
            tree = self._trees[action] = PatternTree()
            for pattern, rule in first.items():
                tree.put(pattern, rule)
        return self._trees[action]


_Shares: TypeAlias = dict[tuple[bool, str], _Share]
"""For each kind of rule, and name, group, or everybody."""


class Rules:
    """All rules that count, none of which ever changes. It is an `Authorizer`."""

    asks = True

    def __init__(self, rules: Iterable[Rule], warnings: Iterable[str]) -> None:
        """`warnings`: what whoever wrote the rules should look at."""
        self.rules = tuple(rules)
        self.warnings = tuple(warnings)
        self.name = _name_of(self.rules)
        """Names them, wherever they stand: the same rules have the same name at all nodes."""
        self._shares: _Shares = {}
        for rule in self.rules:
            for who in dict.fromkeys(rule.who):
                self._shares.setdefault((rule.denies, who), _Share()).rules.append(rule)
        # Of the shares, and not of this object: in a cycle it would outlive whatever takes its place, with all that was
        # decided, until Python's collector finds it; and that would be long.
        self._decide = partial(_decide, self._shares)
        self._decided = lru_cache(maxsize=DECISIONS_MAX)(self._decide)
        self._decided_seldom = lru_cache(maxsize=SELDOM_MAX)(self._decide)

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        """Returns why the action is refused, for the principal; "" if it is allowed."""
        decision = self.explain(principal, action, resource)
        return "" if decision.allowed else decision.text

    def explain(self, principal: Principal, action: Action, resource: Resource) -> Decision:
        """Returns whether an action is allowed, which rule decides that, and a text that says so."""
        if isinstance(resource, str):
            length, decided = len(resource), self._decided
        else:
            length, decided = sum(map(len, resource)), self._decided_seldom
        return (self._decide if length > LENGTH_MAX else decided)(principal, action, resource)


# ------------------------------------------------------------------------------------ how it is decided


def _decide(shares: _Shares, principal: Principal, action: Action, resource: Resource) -> Decision:
    said = f"principal {principal.name!r} may not {_told(action, resource)}"
    allow = _first(_found(shares, principal, action, resource, denies=False))
    if allow is None:
        return Decision(False, None, f"{said}: {_missing(action, resource)}")
    deny = _first(_found(shares, principal, action, resource, denies=True))
    if deny is not None:
        return Decision(False, deny, f"{said}: {_denied(deny, action, resource)}")
    return Decision(True, allow, f"{allow.place} allows it")


def _found(
    shares: _Shares, principal: Principal, action: Action, resource: Resource, *, denies: bool
) -> Iterator[Rule]:
    """Yields rules that concern a question: of each name, group, and of those for everybody the first, and more."""
    find = _finder(principal, action, resource, denies=denies)
    # A name that looks like a group's, or like that of everybody, is a name all the same: it has no rules.
    named = principal.name != EVERYBODY and not principal.name.startswith(GROUP)
    names = [principal.name] if named else []
    for who in (*names, *(GROUP + group for group in sorted(principal.groups)), EVERYBODY):
        share = shares.get((denies, who))
        if share is not None:
            yield from find(share)


def _name_of(rules: Iterable[Rule]) -> str:
    """Returns a name that follows from what rules say, and from nothing else."""
    said = []
    for each in rules:
        more = (each.publishers,) if each.publishers else ()  # nodes that are older know the other keys alone
        said.append((each.denies, each.who, each.actions, each.topics, each.names, each.client_ids, *more))
    return blake2b(repr(said).encode(), digest_size=4).hexdigest()


def _first(rules: Iterable[Rule]) -> Rule | None:
    """The one that stands first."""
    return min(rules, key=lambda rule: rule.number, default=None)


def _finder(
    principal: Principal, action: Action, resource: Resource, *, denies: bool
) -> Callable[[_Share], Iterable[Rule]]:
    """What of a share concerns a question."""
    if isinstance(resource, AnyTopic):
        if action is not Action.SUBSCRIBE:
            return lambda _: ()
        return _of_pattern(action, resource.pattern, denies=denies)
    if isinstance(resource, Publisher):
        if action is not Action.PUBLISH:
            return lambda _: ()
        return lambda share: _next(share.of(action), lambda rule: _is_for_publisher(rule, resource.name))
    if isinstance(resource, Durable):
        if action in {Action.PUBLISH, Action.SUBSCRIBE}:
            return lambda _: ()
        return lambda share: _next(share.of(action), lambda rule: _concerns(rule, action, principal, resource))
    if action in {Action.PUBLISH, Action.SUBSCRIBE}:
        if denies:
            return lambda share: share.tree(action).meeting(resource)
        return lambda share: share.tree(action).covering(resource)
    if action is Action.CONSUME:
        return lambda _: ()
    if action is Action.OBSERVE and resource.startswith(TOPIC):
        return _of_pubends(resource.removeprefix(TOPIC), denies=denies)
    return lambda share: _next(share.of(action), lambda rule: _is_whole(rule, action, resource))


def _next(rules: Iterable[Rule], concerns: Callable[[Rule], bool]) -> Iterable[Rule]:
    first = next(filter(concerns, rules), None)
    return () if first is None else (first,)


def _concerns(rule: Rule, action: Action, principal: Principal, durable: Durable) -> bool:
    """Whether a rule for an action is for a durable subscription, if it is for this principal."""
    if rule.names and not any(text_matches(pattern, durable.name) for pattern in rule.names):
        return False
    if rule.client_ids:
        return any(text_matches(pattern, durable.client_id) for pattern in rule.client_ids)
    if rule.denies:  # it takes away all of them, unless it was written for topics alone
        return bool(rule.names) or not rule.topics
    return action is not Action.CONSUME or is_own(principal, durable.client_id)


def _is_for_publisher(rule: Rule, name: str) -> bool:
    """Whether a rule for publishing is for publishers of a name: one that denies topics takes no name away."""
    return not (rule.publishers or rule.denies) or any(text_matches(pattern, name) for pattern in rule.publishers)


def _of_pattern(action: Action, pattern: str, *, denies: bool) -> Callable[[_Share], Iterable[Rule]]:
    """Rules by which something is left of a pattern, or nothing is."""

    def find(share: _Share) -> Iterable[Rule]:
        tree = share.tree(action)
        return tree.covering(pattern) if denies else tree.meeting(pattern)

    return find


def _of_pubends(pattern: str, *, denies: bool) -> Callable[[_Share], Iterable[Rule]]:
    """Rules for a row about a pubend. It is one row: it is hidden only if nothing is left of it."""

    def find(share: _Share) -> Iterable[Rule]:
        yield from _of_pattern(Action.OBSERVE, pattern, denies=denies)(share)
        yield from _next(share.of(Action.OBSERVE), lambda rule: rule.names_nothing if denies else not rule.topics)

    return find


def _is_whole(rule: Rule, action: Action, resource: str) -> bool:
    """Whether a rule concerns something that is no durable subscription and no topic."""
    if action is Action.MANAGE:
        return not rule.names_durables
    if resource in LISTINGS:  # where each row is decided about
        return rule.names_nothing or not rule.denies
    return rule.names_nothing or rule.denies  # the status tells of everything


# ------------------------------------------------------------------------------------------- texts


def _told(action: Action, resource: Resource) -> str:
    """What somebody may not do."""
    if isinstance(resource, Durable):
        return f"{action.value} the durable subscription {resource}"
    if isinstance(resource, AnyTopic):
        return f"{action.value} to any topic of {resource.pattern!r}"
    if isinstance(resource, Publisher):
        return f"{action.value} as publisher {resource.name!r}"
    if action is Action.PUBLISH:
        return f"publish to topic {resource!r}"
    if action is Action.SUBSCRIBE:
        return f"subscribe to {resource!r}"
    return f"{action.value} {resource!r}"


def _missing(action: Action, resource: Resource) -> str:
    """Which kind of rule is missing."""
    what = f"no [[allow]] with the action {action.value!r} is for it"
    if isinstance(resource, Durable):
        more = " and this subscription"
        if action is Action.CONSUME:
            more += " (without client_ids: where the client id is the principal's name, alone or before a `-`)"
        return what + more
    if isinstance(resource, AnyTopic):
        return f"{what} and for any of them"
    if isinstance(resource, Publisher):
        return f"{what} and this name of a publisher"
    if action is Action.SUBSCRIBE:
        return f"{what} and has a topic pattern that covers all of that"
    if action is Action.PUBLISH:
        return f"{what} and this topic"
    return what


def _denied(rule: Rule, action: Action, resource: Resource) -> str:
    """What a rule takes away."""
    if action is Action.SUBSCRIBE and isinstance(resource, str) and not _takes_all(rule, resource):
        return f"{rule.place} denies a part of that; a narrower subscription is possible"
    return f"{rule.place} denies it"


def _takes_all(rule: Rule, pattern: str) -> bool:
    return any(pattern_covers(own, pattern) for own in rule.topics)


# ----------------------------------------------------------------------- whom nobody can be called


def strangers(rules: Sequence[Rule], authenticators: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each name in the rules that no authenticator can make: that rule is for nobody.

    `authenticators`: the names of their plugins. Of one that is not ours nothing is known but that names are names.
    """
    kinds = set(authenticators)
    for rule in rules:
        for who in rule.who:
            if problem := _stranger(who, kinds):
                yield f"{rule.place}: {who!r} is for nobody: {problem}"


def _stranger(who: str, kinds: set[str]) -> str:
    if who == EVERYBODY:
        return ""
    if who == NOBODY_IN_PARTICULAR:
        if kinds <= {"certificate", "scram", "token"}:
            return "there is no [[auth]] with the plugin 'anonymous', so everybody has said who he is"
        return ""
    if who.startswith(GROUP):
        if problem := group_problem(who.removeprefix(GROUP)):
            return f"it {problem}"
    elif problem := user_problem(who):
        return f"the name {problem}"
    elif "*" in who:
        return "`*` stands for everybody only where it stands alone; who is meant is named, or is in a group"
    return "everybody is 'anonymous': there is no other [[auth]]" if kinds == {NOBODY_IN_PARTICULAR} else ""


def by_kind(rules: Iterable[Rule]) -> Mapping[str, list[Rule]]:
    """The rules by the names of their tables."""
    found: dict[str, list[Rule]] = {"allow": [], "deny": []}
    for rule in rules:
        found[rule.kind].append(rule)
    return found

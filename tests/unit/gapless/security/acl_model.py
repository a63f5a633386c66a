"""What rules say, in the plainest way: every topic is tried, and every rule is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.core.resources import AnyTopic, Durable, Publisher, Resource
from gapless.security.rules import Rule

LEVELS = ("a", "b", "z")
"""No pattern of the tests names `z`: it stands for all other levels."""
TOPICS = [".".join(levels) for length in range(1, 5) for levels in product(LEVELS, repeat=length)]
"""Patterns of the tests have three levels at most: the fourth one stands for all that `#` stands for."""


@lru_cache(maxsize=1024)
def topics_of(pattern: str) -> set[str]:
    """The topics that match a pattern."""
    parts = [{"*": r"[^.]+", "#": r".*"}.get(part, part) for part in pattern.split(".")]
    text = r"\.".join(parts) if pattern == "#" else r"\.".join(parts).replace(r"\..*", r"(\..*)?")
    return {topic for topic in TOPICS if re.fullmatch(text, topic)}


def globbed(patterns: tuple[str, ...], text: str) -> bool:
    return any(re.fullmatch(".*".join(map(re.escape, one.split("*"))), text, re.DOTALL) for one in patterns)


def is_for(rule: Rule, principal: Principal, action: Action) -> bool:
    names = {"*", principal.name, *(f"group:{group}" for group in principal.groups)}
    return action in rule.actions and bool(names & set(rule.who))


def concerns(rule: Rule, principal: Principal, action: Action, resource: Resource) -> bool:
    all_durables = "*" in (rule.names or "*") and "*" in (rule.client_ids or "*")
    whole = all_durables and "#" in (rule.topics or "#")
    if isinstance(resource, AnyTopic):
        meant, mine = topics_of(resource.pattern), map(topics_of, rule.topics)
        left = any(meant <= each if rule.denies else meant & each for each in mine)
        return action is Action.SUBSCRIBE and left
    if isinstance(resource, Publisher):
        named = globbed(rule.publishers, resource.name) if rule.publishers else not rule.denies
        return action is Action.PUBLISH and named
    if isinstance(resource, Durable):
        if action in (Action.PUBLISH, Action.SUBSCRIBE) or (rule.names and not globbed(rule.names, resource.name)):
            return False
        if rule.client_ids:
            return globbed(rule.client_ids, resource.client_id)
        if rule.denies:
            return bool(rule.names) or not rule.topics
        own = resource.client_id == principal.name or resource.client_id.startswith(principal.name + "-")
        return own or action is not Action.CONSUME
    if action is Action.CONSUME:
        return False
    if action in (Action.PUBLISH, Action.SUBSCRIBE):
        mine, meant = map(topics_of, rule.topics), topics_of(resource)
        return any(meant & topics if rule.denies else meant <= topics for topics in mine)
    if action is Action.OBSERVE and resource.startswith("topic "):
        meant = topics_of(resource.removeprefix("topic "))
        if rule.denies:
            return whole or any(meant <= topics for topics in map(topics_of, rule.topics))
        return not rule.topics or any(meant & topics for topics in map(topics_of, rule.topics))
    if action is Action.MANAGE:
        return all_durables
    if resource in ("subscriptions", "pubends"):
        return whole or not rule.denies
    return whole or rule.denies


def deciding(rules: list[Rule], principal: Principal, action: Action, resource: Resource) -> tuple[bool, Rule | None]:
    """Whether it is allowed, and the rule that decides."""

    def found(*, denies: bool) -> Iterator[Rule]:
        for rule in rules:
            if (
                rule.denies is denies
                and is_for(rule, principal, action)
                and concerns(rule, principal, action, resource)
            ):
                yield rule

    allow = next(found(denies=False), None)
    deny = next(found(denies=True), None)
    return (allow is not None and deny is None), (allow and (deny or allow))

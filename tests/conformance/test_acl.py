"""Our authorizers through the suite that we ship for everyone's, and broken ones, which it notices."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gapless.core.ports import Action, Authorizer
from gapless.core.principals import Principal
from gapless.core.resources import Durable, Resource
from gapless.errors import ConfigurationError
from gapless.plugins import load
from gapless.security.allow_all import AllowAll
from gapless_testing.acl import AclError, AclHarness, AclSuite, Question

SHOP = Principal("shop")
BILLING = Principal("bill", frozenset({"billing"}))
TABLES = """\
[[allow]]
who = ["shop", "group:billing"]
actions = ["publish"]
topics = ["orders.#"]

[[allow]]
who = "group:billing"
actions = ["subscribe", "consume"]
topics = ["orders.#", "dead.#"]
names = ["billing.*"]
client_ids = ["billing-*"]

[[deny]]
who = "*"
actions = "subscribe"
topics = "orders.secret.#"
"""


class Installed(AclHarness):
    plugin = ""

    def make(self, options: Mapping[str, Any]) -> Authorizer:
        made: Authorizer = load("acl", self.plugin)(options=options)
        return made


class RulesHarness(Installed):
    plugin = "rules"

    def __init__(self, folder: Path) -> None:
        (folder / "acl.toml").write_text(TABLES, "utf-8")
        self.options = {"file": str(folder / "acl.toml")}
        self.wrong = [("file", {"file": 7}), ("cannot be read", {"file": str(folder / "none")}), ("no rule", {})]

    def allowed(self) -> Sequence[Question]:
        return [
            Question(SHOP, Action.PUBLISH, "orders.eu"),
            Question(BILLING, Action.SUBSCRIBE, "orders.eu.#"),
            Question(BILLING, Action.CONSUME, Durable("billing-1", "billing.late")),
        ]

    def refused(self) -> Sequence[Question]:
        return [
            Question(SHOP, Action.SUBSCRIBE, "orders.eu"),
            Question(BILLING, Action.SUBSCRIBE, "orders.#"),
            Question(BILLING, Action.SUBSCRIBE, "#"),
            Question(BILLING, Action.CONSUME, Durable("shop", "billing.late")),
            Question(BILLING, Action.CONSUME, Durable("billing-1", "late")),
            Question(SHOP, Action.MANAGE, Durable("shop", "billing.late")),
            Question(SHOP, Action.OBSERVE, "subscriptions"),
        ]


class TestRules(AclSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> AclHarness:
        return RulesHarness(tmp_path)


class AllowAllHarness(Installed):
    plugin = "allow-all"

    def allowed(self) -> Sequence[Question]:
        return [Question(SHOP, action, "orders.eu") for action in Action]

    def refused(self) -> Sequence[Question]:
        return []


class TestAllowAll(AclSuite):
    @pytest.fixture
    def harness(self) -> AclHarness:
        return AllowAllHarness()


# --------------------------------------------------------------------------------- what is noticed


class Right:
    """Lets the shop publish orders."""

    asks = True

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        is_right = principal == SHOP and action is Action.PUBLISH and resource == "orders.eu"
        return "" if is_right else f"{principal} may not {action.value} {resource}"


class NeverAsked(Right):
    asks = False


class Lenient(Right):
    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return ""


class Strict(Right):
    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return f"{principal} may not {action.value} {resource}"


class Curt(Right):
    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return "no" if super().refusal(principal, action, resource) else ""


class Fragile(Right):
    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        str(resource).encode()
        return super().refusal(principal, action, resource)


class Fickle(Right):
    count = 0

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        self.count += 1
        said = super().refusal(principal, action, resource)
        return f"{said} ({self.count})" if said else ""


class Waits(Right):
    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        time.sleep(0.001)
        return super().refusal(principal, action, resource)


class Slow(Right):
    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        began = time.thread_time()
        while len(str(resource)) > 1000 and time.thread_time() - began < 0.03:
            pass
        return super().refusal(principal, action, resource)


class Wordless(Right):
    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return super().refusal(principal, action, resource) or None  # type: ignore[return-value]


class Hoards(Right):
    def __init__(self) -> None:
        self.kept: dict[Resource, str] = {}

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return self.kept.setdefault(resource, super().refusal(principal, action, resource))


class TrustsStrangers(Right):
    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return "" if "known" in principal.name else super().refusal(principal, action, resource)


class RightHarness(AclHarness):
    def __init__(self, kind: Callable[[], Authorizer], *, checks: bool = True) -> None:
        self.kind = kind
        self.checks = checks

    def make(self, options: Mapping[str, Any]) -> Authorizer:
        if self.checks and options:
            raise ConfigurationError(f"no option {min(options)!r}")
        return self.kind()

    def allowed(self) -> Sequence[Question]:
        return [Question(SHOP, Action.PUBLISH, "orders.eu")]

    def refused(self) -> Sequence[Question]:
        return [Question(SHOP, Action.SUBSCRIBE, "orders.eu"), Question(BILLING, Action.CONSUME, Durable("b", "late"))]


class TestRight(AclSuite):
    @pytest.fixture
    def harness(self) -> AclHarness:
        return RightHarness(Right)


def is_noticed(harness: RightHarness, test: str) -> bool:
    """Whether that test of the suite fails."""
    given = {"harness": harness, "authorizer": harness.make(MappingProxyType({}))}
    function = vars(AclSuite)[f"test_{test}"]
    wanted = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    try:
        function(AclSuite(), **{each: given[each] for each in wanted})
    except AclError:
        return True
    return False


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (NeverAsked, "it_says_whether_it_has_to_be_asked"),
        (Lenient, "what_is_refused_is_refused_with_a_reason"),
        (Strict, "what_is_allowed_is_allowed"),
        (Curt, "what_is_refused_is_refused_with_a_reason"),
        (Fragile, "of_strange_texts_it_says_something_too"),
        (Fickle, "the_same_question_has_the_same_answer"),
        (Waits, "what_is_allowed_is_allowed"),
        (Slow, "of_strange_texts_it_says_something_too"),
        (Wordless, "what_is_allowed_is_allowed"),
        (Hoards, "it_does_not_grow_with_what_it_is_asked"),
        (TrustsStrangers, "whoever_is_in_fewer_groups_may_not_do_more"),
    ],
)
def test_a_broken_one_is_noticed(kind: Callable[[], Authorizer], test: str) -> None:
    assert is_noticed(RightHarness(kind), test)
    assert not is_noticed(RightHarness(Right), test)


def test_options_that_nobody_checks_are_noticed() -> None:
    assert is_noticed(RightHarness(Right, checks=False), "options_that_are_wrong_are_refused")


def test_allow_all_is_what_counts_without_rules() -> None:
    assert isinstance(load("acl", "allow-all")(options={}), AllowAll)

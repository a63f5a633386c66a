"""One object that everybody asks, whichever authorizer counts."""

from __future__ import annotations

from gapless.core.ports import Action, Authorizer
from gapless.core.principals import NOBODY, Principal
from gapless.core.resources import Durable, Resource
from gapless.core.server.authority import Authority
from gapless.security.allow_all import AllowAll

SHOP = Principal("shop")


class Nothing:
    """Allows nothing."""

    asks = True

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return "no"


class Broken:
    """Fails."""

    asks = True

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        raise LookupError(resource)


def test_the_process_itself_needs_no_rule() -> None:
    authority = Authority(Nothing())

    assert authority.asks
    assert authority.refusal(SHOP, Action.PUBLISH, "a") == "no"
    assert authority.refusal(NOBODY, Action.PUBLISH, "a") == ""
    assert authority.refusal(Principal("", frozenset({"g"})), Action.PUBLISH, "a") == "no"


def test_another_authorizer_counts_at_once_for_all_who_ask() -> None:
    authority = Authority(AllowAll())
    assert (authority.asks, authority.version) == (False, 1)

    authority.replace(Nothing(), ())

    asked: Authorizer = authority
    assert (authority.asks, authority.version) == (True, 2)
    assert asked.refusal(SHOP, Action.CONSUME, Durable("shop", "late")) == "no"


def test_an_authorizer_that_fails_lets_nobody_pass() -> None:
    refused = Authority(Broken()).refusal(SHOP, Action.PUBLISH, "secret")

    assert "has failed (LookupError)" in refused
    assert "secret" not in refused


def test_a_durable_subscription_is_named_with_its_client() -> None:
    assert str(Durable("desk-7", "late")) == "'late' of client 'desk-7'"


class Named(AllowAll):
    """Rules with a name."""

    def __init__(self, name: object) -> None:
        self.name = name


def state(authority: Authority) -> tuple[int, int, bool]:
    """Which version counts, which one holds, and whether those are one."""
    return authority.version, authority.held, authority.holds


def test_the_first_authorizer_holds_and_so_does_another_one_where_nobody_has_anything_to_judge() -> None:
    authority = Authority(AllowAll())
    assert state(authority) == (1, 1, True)

    authority.replace(Nothing(), ())

    assert state(authority) == (2, 2, True)
    assert not authority.on_held(0, 2), "it did already"


def test_another_one_holds_when_each_judge_has_said_so_and_that_is_told_once() -> None:
    authority = Authority(AllowAll())
    authority.replace(Nothing(), [0, 3, 0])
    assert state(authority) == (2, 1, False)

    assert not authority.on_held(3, 2)
    assert not authority.on_held(3, 2), "again"
    assert not authority.on_held(7, 2), "who is no judge"
    assert state(authority) == (2, 1, False)
    assert authority.on_held(0, 2)

    assert state(authority) == (2, 2, True)
    assert not authority.on_held(0, 2)


def test_one_that_is_overtaken_before_it_held_never_does() -> None:
    """Who was judged by it alone may have what the newest one forbids."""
    authority = Authority(AllowAll())
    authority.replace(Nothing(), [0, 1])
    assert not authority.on_held(0, 2)

    authority.replace(Broken(), [0, 1])
    assert not authority.on_held(1, 2)
    assert not authority.on_held(0, 2)
    assert state(authority) == (3, 1, False)

    assert not authority.on_held(1, 3)
    assert authority.on_held(0, 3)
    assert state(authority) == (3, 3, True)


def test_one_that_was_overtaken_is_not_what_nobody_has_to_judge() -> None:
    authority = Authority(AllowAll())
    authority.replace(Nothing(), [0])

    authority.replace(Broken(), ())

    assert state(authority) == (3, 3, True)
    assert not authority.on_held(0, 2)
    assert state(authority) == (3, 3, True)


def test_a_node_that_begins_anew_has_nothing_to_judge_and_keeps_what_counts() -> None:
    authority = Authority(AllowAll())
    authority.replace(Nothing(), [0])

    authority.begin()

    assert state(authority) == (2, 2, True)
    assert authority.refusal(SHOP, Action.PUBLISH, "a") == "no"
    assert not authority.on_held(0, 2), "of before"
    authority.replace(AllowAll(), [1])
    assert not authority.on_held(0, 3), "of before"
    assert authority.on_held(1, 3)


def test_it_is_called_what_the_rules_are_that_count() -> None:
    authority = Authority(Nothing())
    assert authority.name == "", "they have no name"

    authority.replace(Named("6ba1"), [0])
    assert authority.name == "6ba1", "at once"
    authority.replace(Named(7), [0])

    assert authority.name == "7"

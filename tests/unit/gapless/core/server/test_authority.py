"""One object that everybody asks, whichever authorizer counts."""

from __future__ import annotations

from gapless.core.ports import Action, AllowAll, Authorizer, Durable, Resource
from gapless.core.principals import NOBODY, Principal
from gapless.core.server.authority import Authority

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

"""How nodes say to each other who somebody is."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.principals import Principal, SentPrincipal


@pytest.mark.parametrize("principal", [Principal("ada"), Principal(""), Principal("ada", frozenset({"b", "a"}))])
def test_it_is_the_same_at_another_node(principal: Principal) -> None:
    raw = msgspec.msgpack.encode(principal.sent)
    assert Principal.of(msgspec.msgpack.decode(raw, type=SentPrincipal)) == principal


def test_an_older_node_says_and_understands_the_name_alone() -> None:
    assert Principal.of("ada") == Principal("ada")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Principal("ada").sent), type=str) == "ada"


def test_groups_are_said_in_an_order_that_does_not_change() -> None:
    assert Principal("ada", frozenset({"c", "a", "b"})).sent == ("ada", ("a", "b", "c"))

"""Which tokens an SHB takes for its own, and for which it can answer for another one (protocol: tokens)."""

from __future__ import annotations

import pytest

from gapless.core.ports import Roaming
from gapless.core.wire.tokens import network_seal, seal
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.seals import Seals

HOME, ELSEWHERE = "shb1@a", "shb2@b"


def record(**changes: object) -> SubscriptionRecord:
    fields = {"client_id": "c", "name": "n", "topics": ("t",), "selector": ""} | changes
    return SubscriptionRecord(7, generation=2, version=1, late_start=0, start={}, **fields)  # type: ignore[arg-type]


def seals(shb: str, secret: bytes | None = b"common secret") -> Seals:
    roaming = None if secret is None else Roaming(("shb1", "shb2"), secret)
    return Seals(shb, "net", f"secret of {shb}".encode(), roaming)


def test_another_shb_of_the_network_vouches_for_a_token() -> None:
    offered = seals(HOME).of(record())
    other = seals(ELSEWHERE)

    assert other.vouch(record(), HOME, 7, 2, offered)
    assert not other.vouch(record(), ELSEWHERE, 7, 2, offered)
    assert not other.vouch(record(), HOME, 8, 2, offered)
    assert not other.vouch(record(), HOME, 7, 3, offered)
    assert not seals(ELSEWHERE, b"another secret").vouch(record(), HOME, 7, 2, offered)


@pytest.mark.parametrize("change", [{"client_id": "d"}, {"name": "m"}, {"topics": ("u",)}, {"selector": "a = 1"}])
def test_it_does_not_vouch_for_another_subscription(change: dict[str, object]) -> None:
    assert not seals(ELSEWHERE).vouch(record(**change), HOME, 7, 2, seals(HOME).of(record()))


@pytest.mark.parametrize("secret", [None, b""])
def test_without_a_secret_of_the_network_nobody_vouches(secret: bytes | None) -> None:
    home, other = seals(HOME, secret), seals(ELSEWHERE, secret)

    assert not other.vouch(record(), HOME, 7, 2, home.of(record()))
    assert home.check(record(), home.home, home.of(record()))


def test_the_home_takes_its_tokens_from_before_it_joined_the_network() -> None:
    old = seal(b"secret of shb1@a", "net", 7, 2)

    assert seals(HOME).check(record(), "", old)
    assert not seals(HOME).check(record(), "", seals(ELSEWHERE).of(record()))


def test_the_home_knows_its_tokens_when_the_network_has_another_secret() -> None:
    old = seals(HOME, b"the secret of last year").of(record())

    assert seals(HOME).check(record(), HOME, old)
    assert not seals(ELSEWHERE).vouch(record(), HOME, 7, 2, old)


def test_a_token_of_another_home_is_not_its_own() -> None:
    assert not seals(HOME).check(record(), ELSEWHERE, seals(ELSEWHERE).of(record()))


@pytest.mark.parametrize("not_from", ["", "c"])
def test_a_blank_makes_no_other_seal(not_from: str) -> None:
    offered = seals(HOME).of(record(selector="a=1", not_from=not_from))

    assert seals(ELSEWHERE).vouch(record(selector=" a =\t1", not_from=not_from), HOME, 7, 2, offered)


def test_a_token_of_a_broker_that_sealed_the_selector_as_it_was_written_is_good() -> None:
    written = record(selector="a=1")
    what = ("c", "n", "", "a=1", "t")
    offered = seal(b"secret of shb1@a", "net", 7, 2) + network_seal(b"common secret", "net", HOME, 7, 2, *what)

    assert seals(ELSEWHERE).vouch(written, HOME, 7, 2, offered)

"""Who a certificate says that a client is."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.principals import NO_CERTIFICATE, Admission, Certificate, PeerInfo, Principal, Refusal
from gapless.errors import ConfigurationError
from gapless.node.assembly import UNOPENED
from gapless.plugins import load

ADA = Certificate("ada", ("billing", "shop"), ("spiffe://shop/ada",), ("ada.shop", "www.ada.shop"))


def judged(certificate: Certificate, **options: Any) -> Any:
    authenticator = load("auth", "certificate")(options=options, context=UNOPENED)
    assert (authenticator.mechanism, authenticator.trusted, authenticator.needs_certificate) == ("", True, True)
    peer = PeerInfo("10.0.0.7:4711", certificate, secure=True, is_local=False, binding=b"")
    authentication = authenticator.begin("desk-7", peer)
    return None if authentication is None else authentication.answer(b"whatever")


@pytest.mark.parametrize(
    ("options", "principal"),
    [
        ({}, Principal("ada")),
        ({"principal": "cn", "groups": "ou"}, Principal("ada", frozenset({"billing", "shop"}))),
        ({"principal": "uri"}, Principal("spiffe://shop/ada")),
    ],
)
def test_the_principal_is_taken_from_where_the_configuration_says(
    options: dict[str, Any], principal: Principal
) -> None:
    assert judged(ADA, **options) == Admission(principal, None)


@pytest.mark.parametrize(
    ("certificate", "options", "reason"),
    [
        (Certificate("", (), ("spiffe://shop/ada",), ()), {}, "its certificate has no common name"),
        (ADA, {"principal": "dns"}, "its certificate has 2 DNS names"),
        (Certificate("ada"), {"principal": "uri"}, "its certificate has no URI"),
        (Certificate("a\nda"), {}, "the name in its certificate holds characters that cannot be printed"),
        (Certificate("ada", ("x" * 256,)), {"groups": "ou"}, "names a group that is longer than 255 bytes"),
        (Certificate("ada", tuple(map(str, range(65)))), {"groups": "ou"}, "has 65 groups; at most 64 are taken"),
    ],
)
def test_a_certificate_without_one_good_name_is_refused(
    certificate: Certificate, options: dict[str, Any], reason: str
) -> None:
    refused = judged(certificate, **options)
    assert isinstance(refused, Refusal)
    assert reason in refused.reason


def test_who_has_shown_none_is_left_to_the_next_authenticator() -> None:
    assert judged(NO_CERTIFICATE) is None


def test_it_knows_its_options() -> None:
    with pytest.raises(ConfigurationError, match="authenticator 'certificate': principal"):
        load("auth", "certificate")(options={"principal": "ou"}, context=UNOPENED)
    with pytest.raises(ConfigurationError, match="there is no key 'group'"):
        load("auth", "certificate")(options={"group": "ou"}, context=UNOPENED)

"""The authenticator that everyone has."""

from __future__ import annotations

import pytest

from gapless.core.principals import Admission, Principal
from gapless.errors import ConfigurationError
from gapless.node.assembly import UNOPENED
from gapless.plugins import load


def test_hook_open_auth() -> None:
    authenticator = load("auth", "anonymous")(options={}, context=UNOPENED)

    judged = authenticator.begin("desk-7", None).answer(b"")

    assert judged == Admission(Principal("anonymous"), None)
    assert (authenticator.mechanism, authenticator.trusted) == ("", False)


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="'anonymous' has no option 'file'"):
        load("auth", "anonymous")(options={"file": "secrets"}, context=UNOPENED)

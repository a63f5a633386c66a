"""The authenticator that everyone has."""

from __future__ import annotations

import pytest

from gapless.errors import ConfigurationError
from gapless.plugins import load


def test_hook_open_auth() -> None:
    authenticator = load("auth", "anonymous")(options={})

    principal = authenticator.begin("desk-7", "127.0.0.1:1").answer(b"")

    assert principal.name == "anonymous"
    assert authenticator.trusted is False


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="'anonymous' has no option 'file'"):
        load("auth", "anonymous")(options={"file": "secrets"})

"""The authorizer `allow-all`: everybody who is let in may do everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.ports import Action, Authorizer
from gapless.core.principals import Principal
from gapless.core.resources import Resource
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl


class AllowAll:
    """Allows everything to everybody."""

    asks = False

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        """Refuses nothing."""
        return ""


@hookimpl
def open_acl(options: Mapping[str, Any]) -> Authorizer:
    """The authorizer; it has no options."""
    if options:
        raise ConfigurationError(f"the authorizer 'allow-all' has no option {min(options)!r}")
    return AllowAll()

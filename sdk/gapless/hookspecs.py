"""The hooks: one factory per kind of plugin, called once at start-up and never on a hot path.

A routing plugin may have a second hook, `check_network`.

A plugin is a module (or object) registered under an entry point of the group `gapless.<kind>`; the
entry point's name is the plugin's name. An implementation may take fewer arguments than its hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from gapless.core.network.facts import NetworkMap
    from gapless.core.network.seam import Router
    from gapless.core.ports import AuthContext, ReleasePolicy, Role, RoleContext
    from gapless.spi import Authenticator, Authorizer, Create, LogPlugin, LogVolume, Transport, VolumeIdentity

hookspec = pluggy.HookspecMarker("gapless")


@hookspec(firstresult=True)
def open_storage(path: str, identity: VolumeIdentity, options: Mapping[str, Any], create: Create) -> LogVolume:
    """Return the volume at `path`; made if it is not there and may be, else raise VolumeAbsentError."""


@hookspec(firstresult=True)
def open_transport(options: Mapping[str, Any]) -> Transport:
    """Return a transport with these options."""


@hookspec(firstresult=True)
def open_routing(options: Mapping[str, Any]) -> Router:
    """Return a fresh router: a pure core that has seen nothing."""


@hookspec(firstresult=True)
def check_network(network: NetworkMap, options: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a map for this router, a sentence each; `options`: those all nodes have in common.

    A routing plugin without this hook takes any map.
    """


@hookspec(firstresult=True)
def open_role(context: RoleContext) -> Role:
    """Return a fresh role: a pure core, recovered from the volume that the context gives it to read."""


@hookspec(firstresult=True)
def open_auth(options: Mapping[str, Any], context: AuthContext) -> Authenticator:
    """Return an authenticator: pure, but for the clocks of its context.

    It is called for each recovery of the node; and once before its volume is open, with no rows, to check `options`.
    """


@hookspec(firstresult=True)
def open_acl(options: Mapping[str, Any]) -> Authorizer:
    """Return an authorizer with these options, all of them checked: pure, and asked about every request."""


@hookspec(firstresult=True)
def open_release(options: Mapping[str, Any]) -> ReleasePolicy:
    """Return a release policy with these options: pure, and asked now and then by every pubend that names it."""


@hookspec(firstresult=True)
def open_log(options: Mapping[str, Any]) -> LogPlugin:
    """Return a plugin for numbered logs with these options, all of them checked; nothing is connected yet."""

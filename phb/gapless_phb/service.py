"""The plugin `phb`: makes the publisher-hosting role of a node (hook `open_role`)."""

from __future__ import annotations

from dataclasses import replace

from gapless.core.ports import Role, RoleContext
from gapless.plugins import hookimpl
from gapless_phb.config import settings_from
from gapless_phb.core.broker import PublisherHostingBroker


@hookimpl
def open_role(context: RoleContext) -> Role:
    """Returns the role, recovered from the node's volume, with the settings of `[phb]`."""
    settings = replace(
        settings_from(context.config),
        max_event_bytes=context.max_event_bytes,
        max_delivery_bytes=context.max_delivery_bytes,
    )
    return PublisherHostingBroker(context, settings)

"""The plugin: found by name, made by its hook."""

from __future__ import annotations

import pytest

from gapless.core.ports import Role, RoleContext
from gapless.errors import ConfigurationError
from gapless.security.allow_all import AllowAll
from gapless_phb import service
from gapless_phb.core.broker import PublisherHostingBroker
from unit.rig import disk_with


def context(**config: object) -> RoleContext:
    wall = 1_790_000_000_000
    return RoleContext("phb", "broker", "network", "storage", disk_with(), 0, wall, b"secret", AllowAll(), 4096, config)


def test_hook_open_role_makes_the_phb() -> None:
    role: Role = service.open_role(context=context(members=["shb1"]))

    assert isinstance(role, PublisherHostingBroker)
    assert role.name == "phb"
    assert role.settings.max_event_bytes == 4096
    role.start(0, 1_790_000_000_000)
    assert len(role.take_effects(0, 0)) == 1


def test_a_wrong_section_stops_it_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"phb\.nonsense"):
        service.open_role(context=context(nonsense=1))

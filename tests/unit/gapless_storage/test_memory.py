"""The plugin: volumes that are found by their names."""

from __future__ import annotations

import pytest

from gapless.errors import ConfigurationError, VolumeLockedError
from gapless.spi import VolumeIdentity
from gapless_storage import memory
from gapless_storage.memory import open_storage
from gapless_testing.storage import IDENTITY
from gapless_testing.storage.crashes import newest_whole_batch, write_batch


def test_open_storage() -> None:
    """A named volume outlives its closing, a private one does not."""
    try:
        volume = open_storage("name", IDENTITY, {})
        write_batch(volume, 1)
        volume.close()
        volume = open_storage("name", IDENTITY, {})

        assert volume.capabilities.durable is False
        assert volume.created is False
        assert newest_whole_batch(volume) == 1
        assert memory.disk("name").unsynced == 0
        with pytest.raises(VolumeLockedError):
            open_storage("name", IDENTITY, {})
    finally:
        memory.forget("name")

    volume = open_storage("name", VolumeIdentity("", ""), {})
    assert volume.created is True
    memory.forget("name")


def test_private_volumes_have_nothing_in_common() -> None:
    one, other = open_storage("", IDENTITY, {}), open_storage("", VolumeIdentity("a", "b"), {})
    write_batch(one, 1)

    assert newest_whole_batch(other) == 0
    assert other.identity == VolumeIdentity("a", "b")


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="'compression'"):
        open_storage("", IDENTITY, {"compression": "lz4"})

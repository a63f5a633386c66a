"""Who a node is: kept in its volume, and checked against the configuration at every start."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from gapless.errors import VolumeCorruptError, VolumeForeignError

if TYPE_CHECKING:
    from gapless.spi import LogVolume, Table

TABLE = "node"
_NETWORK = b"network"
_STORAGE = b"storage"
_SECRET = b"secret"
_BOOT = b"boot"

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What a volume knows of its node."""

    network: str
    """The network it is in: as configured, or made up when the volume was created."""
    storage_id: str
    """Unique to this volume."""
    secret: bytes
    """Seals tokens."""
    boot: int
    """The number of this start, counted from 1."""

    @property
    def start(self) -> int:
        """32 bits that no other start of this volume has, nor (but for a rare chance) one of another in its place.

        A volume that takes the place of a lost one, or of one in memory, counts its starts from 1 again.
        """
        return (crc32(self.storage_id.encode()) + self.boot) & 0xFFFF_FFFF

    def __repr__(self) -> str:
        return f"NodeIdentity({self.network!r}, {self.storage_id!r}, boot {self.boot})"  # never the secret


def claim(volume: LogVolume, network: str, token_bytes: Callable[[int], bytes] = secrets.token_bytes) -> NodeIdentity:
    """Counts a start, makes it durable, and says who the node is. Blocks for a sync.

    `network` is the configured one, or ""; what a new volume is told apart by comes from `token_bytes`.
    Raises VolumeForeignError when the volume belongs to another network, VolumeCorruptError when it has
    lost its identity.
    """
    table = volume.table(TABLE)
    rows = {key: table.get(key) for key in (_NETWORK, _STORAGE, _SECRET, _BOOT)}
    # A volume whose creator was killed before this was durable is as good as new: what was durable once,
    # a storage does not lose unseen.
    identity = _known(rows) if any(rows.values()) else _new(table, network, token_bytes)
    if network and network != identity.network:
        raise VolumeForeignError(
            f"the volume belongs to network {identity.network!r}, the configuration says {network!r}: "
            "give this node a volume of its own, or correct its network"
        )
    table.put(_BOOT, identity.boot.to_bytes(8, "big"))
    volume.write()
    volume.sync()
    return identity


def _new(table: Table, network: str, token_bytes: Callable[[int], bytes]) -> NodeIdentity:
    secret = token_bytes(SECRET_BYTES)
    identity = NodeIdentity(network or token_bytes(8).hex(), token_bytes(8).hex(), secret, boot=1)
    table.put(_NETWORK, identity.network.encode())
    table.put(_STORAGE, identity.storage_id.encode())
    table.put(_SECRET, secret)
    return identity


def _known(rows: dict[bytes, bytes | None]) -> NodeIdentity:
    missing = sorted(key.decode() for key, value in rows.items() if value is None)
    if missing:
        raise VolumeCorruptError(f"the volume does not know its node's {', '.join(missing)} any more")
    network, storage_id, secret, boot = (value or b"" for value in rows.values())
    return NodeIdentity(network.decode(), storage_id.decode(), secret, int.from_bytes(boot, "big") + 1)

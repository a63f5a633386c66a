"""The file that says whose volume a directory is, `volume.json`: written first and last when it is made.

A volume that was never finished, because its first process was killed, holds nothing that anybody was
told to be durable. The file's state says so, and it is made anew.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import google_crc32c

from gapless.errors import VolumeCorruptError, VolumeForeignError
from gapless.spi import VolumeIdentity
from gapless_storage._rocksdb.files import replace_file

FILE_NAME = "volume.json"
FORMAT = 1

CREATING = "creating"
COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Marker:
    """What the file says."""

    network: str
    node: str
    volume: str
    """The volume's 16 random bytes in hexadecimal."""
    state: str
    kind: str = "gapless volume"
    format: int = FORMAT

    @property
    def identity(self) -> VolumeIdentity:
        """Who the volume belongs to."""
        return VolumeIdentity(self.network, self.node)

    def completed(self) -> Marker:
        """The same, of a volume that is ready to be used."""
        return replace(self, state=COMPLETE)


def write_marker(directory: Path, marker: Marker) -> None:
    """Puts the file there, durably."""
    fields = asdict(marker)
    text = json.dumps({**fields, "checksum": _checksum(fields)}, indent=2)
    replace_file(directory / FILE_NAME, text.encode())


def read_marker(directory: Path) -> Marker | None:
    """What the file says, or None when there is none.

    Raises VolumeCorruptError when it is garbled, VolumeForeignError when a newer gapless has written it.
    """
    path = directory / FILE_NAME
    try:
        fields = json.loads(path.read_bytes())
        checksum = fields.pop("checksum")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise VolumeCorruptError(f"{path} is garbled: restore it from a copy of this volume") from error
    if checksum != _checksum(fields):
        raise VolumeCorruptError(f"the checksum of {path} does not match: restore it from a copy of this volume")
    if fields.get("format") != FORMAT:
        raise VolumeForeignError(
            f"{directory} has format {fields.get('format')}, and this gapless knows format {FORMAT}: upgrade gapless"
        )
    return Marker(**fields)


def check_identity(directory: Path, marker: Marker, wanted: VolumeIdentity) -> None:
    """Raises VolumeForeignError when the volume is not `wanted`'s; what is empty there is not asked."""
    for word, has, wants in (
        ("network", marker.network, wanted.network),
        ("node", marker.node, wanted.node),
    ):
        if wants not in ("", has):
            raise VolumeForeignError(
                f"{directory} belongs to {word} {has!r}, not to {wants!r}: give this node a directory of its own, "
                f"or correct its {word}"
            )


def _checksum(fields: dict[str, object]) -> int:
    return int(google_crc32c.value(json.dumps(fields, sort_keys=True).encode()))

"""What a power cut may leave of a volume's files: each ends somewhere between its last sync and its end.

The I/O shim has noted what was written and what was synced. RocksDB only appends to the files looked at
here; the fence alone is written in place, in two slots by turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from gapless_storage._rocksdb.fence import _FILE_BYTES, _SLOT_BYTES
from gapless_storage._rocksdb.logformat import intact_records
from integration.io_shim import Call, Kind


@dataclass(frozen=True)
class Durable:
    """What is certain: how much of each file, and what the fence said."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    fence: bytes = b""


def everything(volume: Path) -> Durable:
    """All that there is."""
    sizes = {str(path.relative_to(volume)): path.stat().st_size for path in _appended(volume)}
    fence = volume / "fence"
    return Durable(sizes, fence.read_bytes() if fence.exists() else b"")


def synced(volume: Path, before: Durable, calls: Sequence[Call]) -> Durable:
    """What is durable after those calls, when `before` was at their beginning. Targets are paths in `volume`."""
    sizes = {}
    for path in _appended(volume):
        name = str(path.relative_to(volume))
        certain = before.sizes.get(name, 0) + _synced_bytes([call for call in calls if call.target == name])
        sizes[name] = min(certain, path.stat().st_size)  # an opening cuts off what was never durable
    return Durable(sizes, _synced_fence(volume, before, calls))


def _appended(volume: Path) -> list[Path]:
    return sorted([*volume.glob("rocksdb/*.log"), *volume.glob("rocksdb/MANIFEST-*")])


def _synced_bytes(calls: Sequence[Call]) -> int:
    begun = max((call.began for call in calls if call.kind is Kind.SYNC and call.worked), default=-1)
    return sum(call.result for call in calls if call.kind is Kind.WRITE and call.worked and call.ended < begun)


def _synced_fence(volume: Path, before: Durable, calls: Sequence[Call]) -> bytes:
    """The fence with its newest slot as it was before, if that was not synced."""
    made = [call.data for call in calls if call.target == "fence.new" and call.kind is Kind.WRITE]
    old = (made[-1] if made else before.fence).ljust(_FILE_BYTES, b"\0")
    writes = [call for call in calls if call.target == "fence" and call.kind is Kind.WRITE and call.worked]
    path = volume / "fence"
    if not path.exists() or not writes:
        return path.read_bytes() if path.exists() else b""
    syncs = [call for call in calls if call.target == "fence" and call.kind is Kind.SYNC and call.worked]
    content = path.read_bytes()
    if any(call.began > writes[-1].ended for call in syncs):
        return content
    [slot] = [slot for slot in (0, 1) if content[slot * _SLOT_BYTES :].startswith(writes[-1].data)]
    earlier = writes[-3].data.ljust(_SLOT_BYTES, b"\0") if len(writes) > 2 else _slot(old, slot)
    return content[:_SLOT_BYTES] + earlier if slot else earlier + content[_SLOT_BYTES:]


def _slot(fence: bytes, slot: int) -> bytes:
    return fence[slot * _SLOT_BYTES : (slot + 1) * _SLOT_BYTES]


# ------------------------------------------------------------------------------------------------ cutting

CUTS = ("least", "batches", "torn", "most")
"""Only what is certain; each log to the end of some batch; each file anywhere, with what disks put behind it; all."""


def cut(volume: Path, certain: Durable, how: str, random: Random, *, new_fence: bool | None = None) -> None:
    """Leaves what a power cut may have left. `new_fence`: whether the fence's last write is there."""
    if how != "most":
        for name, size in certain.sizes.items():
            _cut_file(volume / name, size, how, random)
    fence = volume / "fence"
    newer = fence.read_bytes() if fence.exists() else b""
    if newer != certain.fence:
        if new_fence is None:
            new_fence = how == "most" or (how == "batches" and random.random() < 0.5)
        if not new_fence:
            fence.write_bytes(_torn(certain.fence, newer, random) if how == "torn" else certain.fence)


def _cut_file(path: Path, certain: int, how: str, random: Random) -> None:
    size = path.stat().st_size
    if how == "batches" and path.suffix == ".log":
        keep = random.choice([certain, *(end for _, end in intact_records(path, 0) if end > certain)])
    else:
        keep = certain if how != "torn" else random.randint(certain, size)
    if keep == 0 and random.random() < 0.5 and path.suffix == ".log":
        path.unlink()  # its name was not on disk
        return
    with path.open("r+b") as file:
        file.truncate(keep)
        file.seek(keep)
        if how == "torn" and keep < size and path.suffix == ".log":
            tail = min(size - keep, random.choice([1, 20, 5000]))
            file.write(random.choice([b"", bytes(tail), random.randbytes(tail)]))


def _torn(older: bytes, newer: bytes, random: Random) -> bytes:
    """Half of one and half of the other."""
    at = random.randrange(_FILE_BYTES)
    first, second = random.choice([(older, newer), (newer, older)])
    return first[:at] + second[at:]

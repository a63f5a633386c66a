"""The file that says whose volume a directory is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapless.errors import StorageError, VolumeCorruptError, VolumeForeignError
from gapless.spi import VolumeIdentity
from gapless_storage._rocksdb.identity import (
    COMPLETE,
    CREATING,
    FILE_NAME,
    Marker,
    _checksum,
    check_identity,
    read_marker,
    write_marker,
)

MARKER = Marker("network ü", "node", "00" * 16, CREATING)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_marker(tmp_path, MARKER)
    before = read_marker(tmp_path)
    write_marker(tmp_path, MARKER.completed())

    assert before == MARKER
    assert read_marker(tmp_path) == Marker("network ü", "node", "00" * 16, COMPLETE)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read_marker(tmp_path) is None


def test_every_flipped_byte_is_harmless_or_seen(tmp_path: Path) -> None:
    """Harmless is white space between the words."""
    write_marker(tmp_path, MARKER)
    content = (tmp_path / FILE_NAME).read_bytes()
    seen = 0
    for place in range(len(content)):
        for mask in (0x01, 0x20):
            spoilt = bytearray(content)
            spoilt[place] ^= mask
            (tmp_path / FILE_NAME).write_bytes(spoilt)
            try:
                assert read_marker(tmp_path) == MARKER
            except StorageError:
                seen += 1

    assert seen > len(content)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"checksum": 1}', "\xff"])
def test_garbage_is_corrupt(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text, "latin-1")

    with pytest.raises(VolumeCorruptError):
        read_marker(tmp_path)


def test_a_newer_format_asks_for_a_newer_gapless(tmp_path: Path) -> None:
    fields: dict[str, object] = {"format": 2, "network": "", "something": "new"}
    (tmp_path / FILE_NAME).write_text(json.dumps({**fields, "checksum": _checksum(fields)}))

    with pytest.raises(VolumeForeignError, match="upgrade gapless"):
        read_marker(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        (VolumeIdentity("other", "node"), "network 'network ü', not to 'other'"),
        (VolumeIdentity("", "other"), "node 'node', not to 'other'"),
    ],
)
def test_a_stranger_is_told_whose_it_is(tmp_path: Path, wanted: VolumeIdentity, word: str) -> None:
    with pytest.raises(VolumeForeignError, match=word):
        check_identity(tmp_path, MARKER, wanted)


@pytest.mark.parametrize(("network", "node"), [("", ""), ("network ü", ""), ("", "node"), ("network ü", "node")])
def test_its_owner_may(tmp_path: Path, network: str, node: str) -> None:
    check_identity(tmp_path, MARKER, VolumeIdentity(network, node))

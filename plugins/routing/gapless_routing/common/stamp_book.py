"""Stamps by name: a stamp of many SHBs travels once per link, and knowledge names it from then on.

The name of a stamp is a hash of it, so no name can ever mean another stamp, whoever says it, and whenever. Each end of
a link keeps the last 64 stamps that it has said there, and the last 64 that it has heard. Frames may be lost, and
overtake each other. So a name may come that says nothing to its receiver: then the events are taken, the silence is
believed under the lowest stamp alone, which is true under every other one, and the stamp is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from gapless.core.network.frames import STAMP_NAME_BYTES
from gapless.core.stream.ticks import ShbId

KEPT: Final = 64
"""So many stamps are known by name at each end of a link, of each direction."""

_encode = msgspec.msgpack.Encoder().encode


def name_of(stamp: Mapping[ShbId, int]) -> bytes:
    """Returns the name of a stamp: the first bytes of the blake2b of its SHBs, in order, and their versions."""
    return blake2b(_encode(sorted(stamp.items()))).digest()[:STAMP_NAME_BYTES]


class StampBook:
    """The stamps that have a name on one link."""

    __slots__ = ("_heard", "_last", "_said")

    def __init__(self) -> None:
        self._said: dict[bytes, Mapping[ShbId, int]] = {}
        self._heard: dict[bytes, Mapping[ShbId, int]] = {}
        self._last: tuple[Mapping[ShbId, int], bytes] = {}, b""
        """The stamp that was said last, and its name: the next one is mostly the same."""

    def say(self, stamp: Mapping[ShbId, int]) -> tuple[bytes, bool]:
        """Returns the name of a stamp, and whether the stamp has to be said before that."""
        if stamp == self._last[0]:
            name = self._last[1]
        else:
            name = name_of(stamp)
            self._last = stamp, name
        is_new = name not in self._said
        if is_new:
            _keep(self._said, name, stamp)
        return name, is_new

    def said(self, name: bytes) -> Mapping[ShbId, int] | None:
        """Returns the stamp of a name that was said here; None: it was not, or long ago."""
        return self._said.get(name)

    def hear(self, stamp: Mapping[ShbId, int]) -> None:
        """The other end has said a stamp."""
        _keep(self._heard, name_of(stamp), stamp)

    def heard(self, name: bytes) -> Mapping[ShbId, int] | None:
        """Returns the stamp that the other end means by a name; None: that is not known here."""
        return self._heard.get(name)


def _keep(stamps: dict[bytes, Mapping[ShbId, int]], name: bytes, stamp: Mapping[ShbId, int]) -> None:
    stamps.pop(name, None)
    stamps[name] = stamp
    if len(stamps) > KEPT:
        del stamps[next(iter(stamps))]

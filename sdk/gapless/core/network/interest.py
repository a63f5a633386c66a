"""What an SHB wants, as one number: an SHB and whoever knows its interest compare it now and then."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from gapless.selectors import Filter

_encode = msgspec.msgpack.Encoder().encode


def digest(filters: Mapping[int, Filter]) -> int:
    """Returns a number for what an interest holds, whatever its order and its history.

    An SHB and a table that have the same version compare it now and then: where it differs, the whole interest is sent
    again.
    """
    total = 0
    for subscription, wanted in filters.items():
        total ^= row_digest(subscription, wanted)
    return total


def row_digest(subscription: int, wanted: Filter) -> int:
    """Returns what one subscription adds to `digest`, or takes from it, by exclusive or."""
    row = _encode((subscription, wanted.topics, wanted.selector))
    return int.from_bytes(blake2b(row, digest_size=8).digest(), "big")

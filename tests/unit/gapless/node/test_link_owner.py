"""What passes clients' links is counted as it comes and goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from gapless.core.gauges import values_by
from gapless.node.link_owner import BYTES, FRAMES, LinkOwner, Traffic
from links import FakeLink

if TYPE_CHECKING:
    from gapless.node.machine import Machine


def test_frames_and_bytes_count_in_both_directions() -> None:
    traffic = Traffic()
    owner = LinkOwner(cast("Machine", SimpleNamespace(traffic=traffic, on_frames=lambda *_: None)), 1, FakeLink())
    owner.on_frames([b"abc", b"d"])
    traffic.on_out([b"ef", (b"head", b"body!")])
    traffic.on_out([b"g"])

    assert values_by(traffic.gauges(), FRAMES, "direction") == {"in": 2, "out": 3}
    assert values_by(traffic.gauges(), BYTES, "direction") == {"in": 4, "out": 12}

"""One request to subscribe, as one reads it: through few files, and without coming back to them again and again.

A *stay* is what runs in one file before another one has its turn. Rooms that only keep what others decide on (`BELOW`)
do not count: their calls read like words.
"""

from __future__ import annotations

import sys
from itertools import groupby
from types import FrameType
from typing import Any

from gapless.core.wire import messages as m
from unit.gapless_shb.core.subscriptions.test_attach import AttachRig

CORE = "gapless_shb/core/"
BELOW = ("state/", "live/", "catch_up/", "pfs/")


def test_a_request_that_creates_a_subscription_is_read_in_few_files() -> None:
    rig, files = AttachRig(), list[str]()
    handle, session = rig.world.role.requests()[m.Subscribe], rig.session(1)
    request = m.Subscribe(1, "s", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.ERROR, 10, 1 << 20)

    def trace(frame: FrameType, _event: str, _arg: Any) -> Any:
        _, is_core, file = frame.f_code.co_filename.partition(CORE)
        if not is_core or file.startswith("test_"):
            return None
        files.append(file)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        handle(session, request, rig.world.now, rig.world.wall)
    finally:
        sys.settrace(before)
    stays = [file for file, _ in groupby(file for file in files if not file.startswith(BELOW))]

    assert "subscriptions/attach.py" in stays
    assert len(set(stays)) <= 8
    assert len(stays) - len(set(stays)) <= 4, stays

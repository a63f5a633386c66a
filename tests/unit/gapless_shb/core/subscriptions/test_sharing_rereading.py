"""What a shared subscription reads again when its broker has crashed, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.wire.messages import Kind, OnChange, Settle, Verdict
from gapless_shb.core.shared.consumers import SharedSubscription
from gapless_shb.core.subscriptions import sharing
from unit.gapless_shb.core.harness import PUBEND
from unit.gapless_shb.core.subscriptions.test_sharing import SharingRig, ticks_of


class Recorded(SharedSubscription):
    """Each that was made, in order."""

    made: list[Recorded]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.made.append(self)


def test_what_somebody_names_after_a_crash_is_read_and_nothing_beyond_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Recorded, "made", [], raising=False)
    monkeypatch.setattr(sharing, "SharedSubscription", Recorded)
    rig = SharingRig()
    one = rig.come("one", sharing={"window": 1})
    rig.publish_all(5)
    [tick] = one.events()
    rig.crash(0)
    session = rig.session("one")
    rig.ask(session, known=one.answer, sharing={"window": 1, "holds": (one.holds(tick),)})
    rig.sync()
    shared = Recorded.made[-1]
    events = rig.knowledge(0, rig.stable, raw=True, reply=True).data
    assert list(events.ticks) == ticks_of(rig)

    assert not shared.is_full(PUBEND), "what was held before has room"
    rest = shared.put(PUBEND, events)

    assert rest is not None
    assert list(rest.ticks) == ticks_of(rig)[1:]
    assert shared.is_full(PUBEND), "its reader has not said yet that it has read that far"
    rig.feed(Settle(one.answer.sid, 1, (Verdict(Kind.ACKNOWLEDGE, one.holds(tick), 0),)), session)
    assert shared.unsettled == 0


def test_another_filter_does_not_look_again_at_what_was_passed_as_silence() -> None:
    """Silence moves the position, and writes no row of the window: what is below the position may be released."""
    rig = SharingRig()
    rig.come("one", selector="n > 1000")
    rig.publish_all(8)
    rig.wait(2_000)
    rig.restart()
    rig.wait(20_000)

    two = rig.come("two", selector="n >= 0", on_change=OnChange.KEEP_POSITION)
    rig.publish_all(2)
    rig.settle_down()

    assert sorted(two.events()) == ticks_of(rig)[8:]

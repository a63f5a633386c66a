"""Each rule of shared subscriptions, broken on purpose: a test that says the rule sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.switches.edits import Change, Edit, Replace, applied
from unit.gapless_shb.core.subscriptions import test_sharing as rules

_SHARED = "gapless_shb.core.shared.consumers:SharedSubscription"
BROKEN: dict[str, tuple[Change, Callable[[], None]]] = {
    "TS5: who is sent an event has attempted it": (
        Edit(
            "gapless_shb.core.shared.dispatch:Dispatch._hold",
            "    window.hold(chunk, mask)",
            "    window.attempt(chunk, mask)\n    window.hold(chunk, mask)",
        ),
        rules.test_what_was_never_handed_out_is_as_it_was_before,
    ),
    "TS15: what a consumer died with goes with the others": (
        Edit("gapless_shb.core.shared.window:Window.free", "if death and", "if False and"),
        rules.test_what_a_consumer_died_with_goes_alone,
    ),
    "TS16: a verdict is taken from whoever sends it": (
        Edit(
            f"{_SHARED}._claim",
            "other is None or other.first + other.places.index(place) >= number or number > self.ceiling.before",
            "other is None",
        ),
        rules.test_a_hold_runs_out,
    ),
    "TS24: what is settled counts": (
        Edit("gapless_shb.core.shared.window:Window.finish", "self.count -= mask.bit_count()", "pass"),
        rules.test_the_window_bounds_what_is_not_settled,
    ),
    "TS26: nobody is waited for": (
        Edit(f"{_SHARED}.finish_turn", "hidden=self.hidden_until > 0", "hidden=False"),
        rules.test_after_a_crash_nothing_of_doubt_goes_to_others_before_all_have_come_back,
    ),
    "TS26: the quarantine ends by time alone": (
        Replace(f"{_SHARED}._arrived", "return"),
        rules.test_after_a_crash_nothing_of_doubt_goes_to_others_before_all_have_come_back,
    ),
    "TS26: who was counted as gone is waited for": (
        Replace("gapless_shb.core.shared.settling:Roster.mark_gone", "return"),
        rules.test_the_quarantine_ends,
    ),
    "TS26: the roster is written later": (
        Edit(f"{_SHARED}.enter", "self.roster.is_durable(member.instance)", "True"),
        rules.test_nothing_is_delivered_before_who_gets_it_stands_in_the_roster,
    ),
    "TS27: a lost link is a death": (
        Replace(f"{_SHARED}.lose_link", "member.is_here = False\nself._die(member)"),
        rules.test_a_lost_link_is_no_death,
    ),
    "TS34: another filter begins at the floor": (
        Replace("gapless_shb.core.shared.window:Window.pass_to", "self.frontier = self.newest = self.floor"),
        rules.test_with_another_filter_what_is_not_settled_stays,
    ),
    "TS34: one tick a pubend lapses with it": (
        Replace("gapless_shb.core.subscriptions.sharing:SharedSubscriptions.kept", "return {}"),
        rules.test_what_is_not_settled_lapses_with_it_and_comes_back,
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rule_would_be_seen(broken: str) -> None:
    change, test = BROKEN[broken]
    with applied([change]), pytest.raises(AssertionError):
        test()

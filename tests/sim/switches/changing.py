"""Broken rules of how a subscription gets another filter, and of `no_local` (protocol: changing)."""

from __future__ import annotations

from sim.switches.edits import Edit
from sim.switches.switch import Switch

_POSITION = "gapless_shb.core.positions:SubscriptionPosition"

CHANGING = (
    Switch(
        "changed_without_joining_again",
        ("T46", "changing"),
        "A subscription with another filter counts as covered where the former one was.",
        (Edit(f"{_POSITION}.begin_anew", "self.join_again()", "self.changed = True"),),
        ("I3", "I10"),
        "A subscription with a backlog in the PFS, or whose new filter is on its way upstream while events flow, gets"
        " another filter and keeps its position.",
        workload="churn",
    ),
    Switch(
        "no_local_leaves_out_the_unnamed",
        ("no_local",),
        "A subscription without its own events does not get those of publishers that do not say who they are.",
        (
            Edit(
                "gapless.selectors.filters:leaving_out",
                'f"{APP_ID} IS NULL OR {APP_ID} <>',
                'f"{APP_ID} <>',
            ),
        ),
        ("I3", "I10"),
        "A subscription with no_local, and events without a JMSXAppID.",
        workload="churn",
    ),
)

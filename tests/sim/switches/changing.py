"""Broken rules of how a subscription gets another filter, and of `no_local` (protocol: changing)."""

from __future__ import annotations

from sim.switches.edits import Edit
from sim.switches.switch import Switch

_POSITION = "gapless_shb.core.state.positions:SubscriptionPosition"

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
        "a_blank_makes_anew",
        ("changing",),
        "A subscription that is asked for with other blanks in its selector, and on_change='jms', is made anew.",
        (
            Edit(
                "gapless_shb.core.subscriptions.checks:is_changed",
                "same_filter = _is_same_filter(session, request, subscription)",
                "same_filter = _is_same_filter(session, request, subscription) and not ("
                "request.on_change is OnChange.JMS and request.selector != subscription.selector)",
            ),
        ),
        ("I3", "I10"),
        "A program that is written anew, with other blanks and on_change='jms', comes back to a backlog.",
        workload="roaming",
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

"""Broken rules of rights that change: what was given under earlier rules, and who waited for it (protocol: rights)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

RIGHTS = (
    Switch(
        "what_goes_on_is_not_judged",
        ("rights",),
        "When other rules count, those who consume are not judged by them: only whoever asks is.",
        (Replace("gapless_shb.core.rights:Rights._judge_consumer", "return"),),
        ("A1",),
        "Rules take from a client that consumes what it may, and events come for it after that.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "who_waited_is_not_judged_again",
        ("rights",),
        "Whoever had to wait gets a subscription because he might have it when he asked.",
        (
            Edit(
                "gapless_shb.core.subscriptions.attach:Subscribing._attach_existing",
                "check_may_have(self._hosting, session.principal,"
                " wanted(session, request) if changes else subscription)",
                "pass",
            ),
            Edit(
                "gapless_shb.core.subscriptions.attach:Subscribing._attach_created",
                "check_may_have(self._hosting, session.principal, creation.subscription)",
                "pass",
            ),
            Edit(
                "gapless_shb.core.roaming.guests:Guests._attach",
                "check_may_have(hosting, session.principal, wanted(session, request))",
                "pass",
            ),
        ),
        ("A1",),
        "Rules change while a client waits for its subscription: for its creation, or for an answer of its home.",
        "roaming",
        ("knowledge",),
    ),
)

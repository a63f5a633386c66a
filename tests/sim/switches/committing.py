"""Broken rules of positions that the broker keeps: what is durable before what is handed out (protocol: committing)."""

from __future__ import annotations

from sim.switches.edits import Edit
from sim.switches.switch import Switch

_DESKS = "gapless_shb.core.subscriptions.commits:CommitRecords"
_CLIENT = "gapless.core.client.consuming.committing:Committing"
_DIES = "Client and broker die together while an event is in hand, or one after the other."

COMMITTING = (
    Switch(
        "repeated_commit_is_not_durable",
        ("TS1",),
        "A consumer that comes back repeats its last commit, and the answer does not wait until that is durable.",
        (Edit(f"{_DESKS}.open", "[row, *self._positions(sid)]", "[row]"),),
        ("J1",),
        "A link breaks with a commit under way; the consumer comes back, and dies with its broker soon after.",
        "committing",
        ("local",),
    ),
    Switch(
        "commit_record_written_after_the_answer",
        ("TS2", "before commit record"),
        "A consumer is answered before it is durable that it has the subscription.",
        (
            Edit(
                "gapless_shb.core.subscriptions.attach:Subscribing._attach",
                "    self._hosting.outbox.write(rows, durable)",
                "    durable(now, wall)\n    self._hosting.outbox.write(rows)",
            ),
        ),
        ("J1",),
        "Client and broker die together after the answer, with the first event in hand.",
        "committing",
        ("local",),
    ),
    Switch(
        "no_doubt_after_an_unclean_end",
        ("TS3",),
        "Who attaches after somebody that did not say what it had in hand is in no doubt.",
        (Edit(f"{_DESKS}.open", "record.doubt = bool(record.holder)", "record.doubt = False"),),
        ("J1",),
        _DIES,
        "committing",
        ("local",),
    ),
    Switch(
        "doubt_ends_with_who_found_it",
        ("TS3",),
        "Who finds doubt and leaves in order takes it along, although it was handed nothing.",
        (Edit(f"{_DESKS}.close", '"" if cleared is None else LEFT', '""'),),
        ("J1",),
        "A process dies with an event in hand; the next one attaches, and leaves before it has been handed that.",
        "committing",
        ("local",),
    ),
    Switch(
        "unheard_attachment_counts",
        ("TS5",),
        "Who asks again because it has not heard the answer is taken for another one: what it recovers counts twice.",
        (Edit(f"{_DESKS}.open", "if is_new or goes_on:", "if True:"),),
        ("J2",),
        "A process recovers what it was handed, and its link breaks before it hears the answer.",
        "committing",
        ("local",),
    ),
    Switch(
        "attempt_is_not_durable",
        ("TS4", "before unit"),
        "What may have been handed out before is handed out when the attempt is noted, and not when it is durable.",
        (
            Edit(
                f"{_DESKS}.commit",
                "    hosting.outbox.write(rows, durable)",
                "    if unit is not None and unit.counted:\n"
                "        durable(now, 0)\n"
                "        hosting.outbox.write(rows)\n"
                "    else:\n"
                "        hosting.outbox.write(rows, durable)",
            ),
        ),
        ("J1",),
        "Client and broker die together again and again with the same event in hand: it is counted too little.",
        "committing",
        ("local",),
    ),
    Switch(
        "batch_is_not_announced",
        ("before unit",),
        "A batch is handed out, and its home does not know how far it goes.",
        (Edit(f"{_CLIENT}.allowed", "first if unit.first == unit.last else None", "last"),),
        ("J1",),
        "A process dies with a batch in hand.",
        "committing",
        ("local",),
    ),
    Switch(
        "gathered_events_are_not_announced",
        ("before unit",),
        "An application that acknowledges by hand is handed one event after another, and only the first is known.",
        (Edit(f"{_CLIENT}.allowed", "if self.gathers and unit.pubend in self.in_hand:", "if False:"),),
        ("J2",),
        "A process dies with several events of a pubend in hand.",
        "committing",
        ("local",),
    ),
    Switch(
        "recovered_events_are_not_marked",
        ("committing",),
        "What an application was handed, and recovers, comes again as if it came for the first time.",
        (
            Edit(
                "gapless.core.client.consuming.subscription:SubscriptionCore.take",
                "if recovered is not None and",
                "if False and",
            ),
        ),
        ("J2",),
        "An application recovers with several events in hand, in one process.",
        "committing",
        ("local",),
    ),
    Switch(
        "attachments_count_as_attempts",
        ("TS5",),
        "An attempt is counted when a consumer attaches, whether or not it is handed the event.",
        (
            Edit(
                f"{_DESKS}.open",
                "    row = self._row(sid, record)",
                "    for pubend, taken in list(record.attempts.items()):\n"
                "        record.attempts[pubend] = Attempt(taken.tick, taken.count + 1, record.holder)\n"
                "    row = self._row(sid, record)",
            ),
        ),
        ("J1",),
        "Processes die while they attach, or leave at once, while an event waits that was taken before.",
        "committing",
        ("local",),
    ),
    Switch(
        "committed_before_durable",
        ("before Committed",),
        "A commit is answered when it has arrived, not when it is durable.",
        (
            Edit(
                f"{_DESKS}.commit",
                "    hosting.outbox.write(rows, durable)",
                "    durable(now, 0)\n    hosting.outbox.write(rows)",
            ),
        ),
        ("J1", "J2"),
        _DIES,
        "committing",
        ("local",),
    ),
    Switch(
        "unknown_pubend_is_committed",
        ("committing",),
        "A commit on a pubend that the home has not heard of yet is answered, and kept nowhere.",
        (Edit(f"{_DESKS}.unknown_of", "if each.pubend not in hosting.streams and (", "if False and ("),),
        ("J1",),
        "A consumer away from its home is handed events of a pubend before its home knows of that.",
        "committing",
        ("knowledge",),
    ),
    Switch(
        "announced_counts_as_handed_out",
        ("marks",),
        "What was announced for a consumer counts as handed out, although it has left in order.",
        (Edit(f"{_DESKS}.close", "record.units = dict(record.former)", "record.former = record.former"),),
        ("J5",),
        "A consumer that acknowledges by hand leaves in order after two events, and another one comes.",
        "committing",
        ("local",),
    ),
    Switch(
        "first_event_is_in_doubt_after_a_change",
        ("marks",),
        "What is in doubt when the filter changes is the first event that the new filter selects.",
        (Edit(f"{_DESKS}.changed", "    self._row(former.sid, record)  # without", "    return []  # without"),),
        ("J1", "J5"),
        "Something is in hand when the subscription is taken over with a filter that selects an earlier event, too.",
        "committing",
        ("local",),
    ),
    Switch(
        "change_ends_the_doubt",
        ("marks",),
        "What was in doubt when the filter changed is forgotten.",
        (Edit(f"{_DESKS}.changed", "added(record.earlier, earlier)", "()"),),
        ("J1", "J2"),
        "Something is in hand when the subscription is taken over with a filter that selects it, too.",
        "committing",
        ("local",),
    ),
)

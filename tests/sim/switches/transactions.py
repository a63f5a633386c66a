"""Broken rules of transactions: where a position is stored, and who may store it (protocol: transactions)."""

from __future__ import annotations

from sim.switches.edits import Edit
from sim.switches.switch import Switch

_DESKS = "gapless_shb.core.subscriptions.commits:CommitRecords"
_CLAIMS = "gapless_phb.core.publishers.consumed:ClaimedPositions"

TRANSACTIONS = (
    Switch(
        "enlisted_before_durable",
        ("TS12", "before transaction"),
        "A pubend is enlisted at the home of a subscription, and that is not durable when the first transaction stores"
        " its position there.",
        (Edit(f"{_DESKS}.commit", "rows.append(self._enlist(sid, enlists))", "self._enlist(sid, enlists)"),),
        ("J4", "J2"),
        "A home crashes after the first transaction at a pubend, and before anybody else attaches.",
        "transactions",
    ),
    Switch(
        "position_of_the_home_alone",
        ("TS13",),
        "Whoever attaches begins where the home says, whatever transactions have stored elsewhere.",
        (
            Edit(
                "gapless_shb.core.subscriptions.attach:Subscribing._attach",
                "self._commit_records.advance(subscription, ticks, now)",
                "self._commit_records.advance(subscription, {}, now)",
            ),
        ),
        ("J4", "J2"),
        "A process dies after a transaction with outputs, and before its home has heard of that.",
        "transactions",
    ),
    Switch(
        "claims_fence_nobody",
        ("TS13",),
        "A pubend tells what was stored for a subscription, and goes on taking transactions of earlier claims.",
        (Edit(f"{_CLAIMS}.checked", "if row is None or row.epoch != epoch:", "if row is None:"),),
        ("J4", "J2"),
        "A process stands still with a transaction unsent, while its rival consumes the same.",
        "transactions",
    ),
    Switch(
        "commit_of_a_former_consumer",
        ("TS13",),
        "A home takes a commit of a consumer that another one has taken over from.",
        (
            Edit(
                "gapless_shb.core.broker:SubscriberHostingBroker._on_commit",
                "consumer_of(session.number, ",
                "consumers.get(",
            ),
            Edit(
                "gapless_shb.core.broker:SubscriberHostingBroker._on_commit",
                " or self._hosting.registry.phase(request.sid) is Phase.ATTACHING",
                "",
            ),
            Edit(
                f"{_DESKS}.is_current",
                "return record is not None and record.epoch == epoch",
                "return record is not None",
            ),
        ),
        ("J4", "J2"),
        "A process stands still with a commit unsent, while its rival consumes the same.",
        "transactions",
    ),
    Switch(
        "tokens_alone_not_recognised",
        ("TS6",),
        "A batch of tokens alone that is sent again is not recognised: it is refused once the subscription was claimed"
        " anew.",
        (
            Edit(
                "gapless_phb.core.publishers.handler:PublishHandler.take",
                "if not pub.events.count and crc == publisher.moved:",
                "if False:",
            ),
        ),
        ("J4", "J2"),
        "A link breaks after a transaction without outputs was stored, and another process takes over meanwhile.",
        "transactions",
    ),
)

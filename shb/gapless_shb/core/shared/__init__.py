"""Shared subscriptions: many consumers, each event held by one of them (protocol: shared-subscriptions).

The modules, from the bottom: `window` (the events that nobody has settled yet, and their rows), `room` (how many those
may be), `settling` (who takes part, and what was settled), `dispatch` (who gets what), `reader`, `consumers` (one
subscription: to the rest of the SHB it is one consumer). `gapless_shb.core.subscriptions.sharing` connects them.
"""

"""Durable subscriptions read by ranges: the position is the caller's, and reading changes nothing.

`service` is what the broker's core knows of it, creates, and acknowledges; `heads` says how far there is something to
read and from where on, `bounds` how far a budget goes, `reader` and `reads` read, `exclusive` keeps two readers apart.
"""

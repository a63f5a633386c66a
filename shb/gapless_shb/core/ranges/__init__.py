"""Durable subscriptions read by ranges: the caller keeps the position, and reading changes nothing.

`service` connects the parts to the broker's core, creates, and acknowledges. `heads` tells how far there is something
to read, and from where on. `bounds` tells how far a budget goes. `reader` and `reads` read. `subscriptions.holders`
keeps two readers of one subscription apart.
"""

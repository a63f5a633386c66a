"""A pubend over a log of somebody else, say a Kafka partition, which numbers its records itself (numbered-logs).

`gateway` has the pubends of one log service, `source` is the source of one. `followed` is what this broker has learned
of the log, `publishing` and `appends` write to it, `duplicates` finds what was logged twice.
"""

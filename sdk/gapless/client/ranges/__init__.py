"""Reading a durable subscription by ranges, for an application that keeps its position itself.

`calls` are those of a connection, `reading` is one range, `leasing` the sole right to read. What a pubend has given up
comes out of `archives`, and is put in its place by `healing`. `keyed` publishing is for a sink that reads by ranges.
"""

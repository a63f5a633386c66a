"""The Spark connector: a durable consumer whose Spark offset is a checkpoint token.

Its parts are here, the source itself is not yet: `options` is what users may say, `rows` leads from the wire to Arrow,
`reading` from a range to batches of it, `offsets` from tokens to Spark's offsets, `planning` says who reads what.
"""

"""What is seen of a world: the taps, the accounts that oracles judge by, and the trace that people read.

`model` is what really happened, `observation` what oracles are told of it. `trace` is the record of a run; `lanes` and
`picture` draw it.
"""

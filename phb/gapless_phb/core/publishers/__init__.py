"""Who publishes to a pubend, and what of it was taken: the same over every log (protocol: publishing).

`table` has the publishers and their sequences, `checkpoints` its form on the disk. `handler` answers them, `keyed`
those who publish by keys; `validation` says what may not be logged. `consumed` has the positions that come with
batches. `appender` is what a log has to offer to them.
"""

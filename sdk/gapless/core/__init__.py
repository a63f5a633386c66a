"""The pure cores and what they speak: no clock, no randomness, no I/O, no task, no thread.

Rules for every module in here: time is an argument (`now`: monotonic integer nanoseconds, for timers;
`wall`: integer milliseconds since 1970, for tick assignment, age and expiry alone); what happened comes
in through `on_*`, what to do goes out through `take_effects()` and `deadline()`; iteration never depends
on the order of a set.
"""

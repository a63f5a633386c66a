"""Running worlds until one breaks a promise: one seed (`run`), many (`campaign`), or a small scope (`exhaustive`).

`shrink` makes a failure small, `regression` keeps it. `script` runs what a person has written down.
"""

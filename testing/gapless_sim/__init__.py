"""A deterministic simulator that runs the real brokers and the real client under virtual time.

    run         one seed: first everything goes wrong, then everything has to come right
    options     what a seed decides; choices, its randomness on a tape
    world       the heap; clocks, trace
    network broker disk application    what the nodes and clients stand on
    faults      what goes wrong, and when
    seam observing model oracles       who looks on, and what must hold
    workloads   what applications do: two generators that know nothing of each other
    exhaustive scopes striking touching    small scopes, with a fault at every position
    shrink listening lanes page regression script    from a failure to understanding

`gapless simulate` runs all of it; `gapless_sim.campaign` does so from Python.
"""

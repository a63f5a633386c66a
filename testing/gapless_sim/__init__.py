"""A deterministic simulator that runs the real brokers and the real client under virtual time.

    run         one seed: first everything goes wrong, then everything has to come right
    options     what a seed decides; choices, its randomness as choice sequences
    world       the heap; clocks, trace
    network broker disk application    what the nodes and clients stand on
    faults      what goes wrong, and when
    router_tap session_tap observation model    who watches
    oracles     what must hold
    sometimes   what must happen now and then, over many seeds
    workloads   what applications do: generators that know nothing of each other
    exhaustive scopes fault_injection access_tracking    small scopes, with a fault at every position
    shrink trace_recorder lanes page regression script    from a failure to understanding

`gapless simulate` runs all of it; `gapless_sim.search.campaign` does so from Python.
"""

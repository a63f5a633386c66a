"""`gapless demo`: real flights, durable subscribers in processes of their own, kills, and the proof.

    data          the flights, in time order, and the events made of them
    selections    what the subscribers select: as gapless is told, and again in plain Python, for the proof
    plan          whom to kill, and when
    publisher     the process that publishes
    subscriber    the process that consumes: token and rows in one SQLite transaction
    worker        one process: started, heard, killed, started again
    supervisor    all of them: the broker, the publisher and the subscribers
    proof         what was consumed, held against the data
    report        what a person sees meanwhile, and at the end
    run           the demo from its beginning to its end

The long loop of kills, `bench/kill_loop.py`, is made of the same parts.
"""

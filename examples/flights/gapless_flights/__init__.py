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

Over Kafka:

    kafka_records    a flight as a record, and how gapless makes properties of it
    kafka_producer   the process that writes them: it knows nothing of gapless
    kafka_topic      the topic, made and removed
    kafka_run        the run, and its supervisor, which also starts and kills the brokers of Kafka's

The long loop of kills, `bench/kill_loop.py`, is made of the same parts.
"""

"""Kafka as the log of gapless, and as its peer: `python -m bench kafka`.

`intake.py` is what a gateway needs for a record, `reading.py` what Kafka sends to it; in `command.py` the works of the
race (`bench.peers`) show how gapless on Kafka, gapless on its own log, and consumer groups do the same.
"""

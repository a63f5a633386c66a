"""A pubend over a log of this broker's own volume, whose ticks it assigns itself (protocol: log).

`source` is the pubend's source: it takes events, makes them durable, and says so. `log` has the records, `clock` gives
ticks, `byte_index` estimates how many bytes lie where, `recovery` reads all of it after a start.
"""

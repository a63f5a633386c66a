"""Who still needs the events of a pubend, and how far they may be forgotten (protocol: members, release).

`members` are the SHBs that count, `release` decides, `log_reader` answers what they ask for.
"""

"""Serving who is behind the head (protocol: readers).

`scheduler` gives the `readers` of a pubend their turns. They ask the network for what is missing (`fetches`), and share
what they can: events in the `page_cache`, whose `pages` they take, and what the PFS does not know in a `scan`.
"""

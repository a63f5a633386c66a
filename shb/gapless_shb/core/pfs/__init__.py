"""The PFS: which ticks matched which subscription (protocol: pfs).

`blocks` is the form of one block, `index` what is kept of them in memory: the open block, and the end of each
subscription's chain.
"""

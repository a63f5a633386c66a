"""What routers share, whatever the shape of their networks; nothing here knows any of them.

    router_state    what all parts of one router share: its time, timers, effects, and its life
    link_table      the links of a broker: which there are, which are full, and how something is sent on them
    stamp_book      stamps by name, on each link
    pacing          interests a little at a time
    census          what the SHBs in each direction want, and who is there at all
    interest_flow   interests and censuses on their way
    notices         what a pubend is, and who is enrolled there
    relay           knowledge of each pubend: pushed, cached, asked for, and answered
    askers          who asked for what, and has not been answered
    pubend_flow     who is told of the pubends, and in which directions the relay goes
    progress        what SHBs are done with, on its way to the pubends
    placing         openings and batches of publishers: who asks, and who submits
    routed_placing  the same, from broker to broker
    addressed       holds, the answers to them and mail, from node to node
    reading         frames of other brokers: decoded, checked, and given to whoever takes them
    relay_router    all of these as one router, without the shape of its network
    interest        tables of what SHBs want, and interests in parts
    trees           maps whose links make a tree, and what is wrong where they do not
    release         up to where all members of a pubend are done

Routers of others may stand on these modules, too.
"""

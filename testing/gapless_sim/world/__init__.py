"""A simulated network: brokers with their disks, links and clocks, and the applications that use them.

`world` runs it, one event after the other; `world_builder` makes it out of `options`, which the `choices` of a seed
draw. Everything in a world is the code of production but for what is outside of it: the network, the disk, the clock.
"""

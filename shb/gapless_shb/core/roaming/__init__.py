"""Subscriptions that are consumed at another SHB than their home (protocol: roaming).

`mail` is what the two say to each other. `home` is the side of the SHB that keeps a subscription, `guests` the side of
the SHB at which it is consumed.
"""

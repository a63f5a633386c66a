"""Serving who is at the head, all together (protocol: constream).

`constream` follows one pubend; `delivery` is one step of it, and the hot path of an SHB. `joining` says from where on
silence honours a new subscription.
"""

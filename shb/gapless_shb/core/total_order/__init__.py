"""Serving a group of pubends in one order (protocol: ordered-delivery).

`groups` says which pubends are a group, and from where on a consumer may have them in order. `delivery` is what one
consumer gets: a `merge`, into which the constreams and a `reader` of its own kind put what they have.
"""

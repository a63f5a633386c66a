"""A client's subscriptions (protocol: acknowledging, committing).

`subscription` is the machine of one, with a `buffer` per pubend and what it is `acknowledging`, or `committing` with
what is in `doubt` and was handed out `earlier`. `items` are what it hands out. `transforming` are the positions of an
application that stores them with its publisher.
"""

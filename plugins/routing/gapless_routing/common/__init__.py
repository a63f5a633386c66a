"""What routers share, whatever the shape of their networks; nothing here knows any of them.

`askers` remembers who asked for what, and has not been answered.
"""

"""Whose a subscription is, and what it is doing: everything that comes before it is served, and after.

`attach` answers requests to subscribe; `checks`, `unverified_positions`, `unheard` and `takeovers` say whether they
may.
`commits` and `claims` keep the position of who commits, `expiry` removes what nobody wants any more, `range_locks`
keep two readers by ranges apart. `listing` and `lost_volumes` tell people of all subscriptions.
"""

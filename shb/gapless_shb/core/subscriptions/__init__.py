"""Whose a subscription is, and what it is doing: everything that comes before it is served, and after.

`attach` answers requests to subscribe; `checks`, `unverified_positions`, `unheard` and `takeovers` say whether they
may, and `holders` take a subscription from whoever has it. A request that cannot be answered yet is in `waiting`.
`commits` and `claims` keep the position of who commits, `expiry` removes what nobody wants any more. `listing` and
`lost_volumes` tell people of all subscriptions.
"""

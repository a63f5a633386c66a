"""What the parts of an SHB share: who subscribes, who consumes, how far each is, and what may be held for them.

`registry` has the subscriptions, `positions` how far each is on a pubend, `pubend` one pubend as all parts see it,
`consumers` those that are attached with the credit of each, `memory` and `turns` what readers may take. `rows` and
`seals` are what of it lies on the disk and in tokens, `refusals` what a client hears that may not have what it asks
for. Nothing here knows how anybody is served.
"""

"""The experiments of the papers that gapless comes from, done again: `python -m bench papers NAME`.

001 is "Scalably Supporting Durable Subscriptions in a Publish/Subscribe System" (DSN 2003), 002 "Exactly-once Delivery
in a Content-based Publish-Subscribe System" (DSN 2002). What needs many machines runs in virtual time, in the simulator
with the cores of production; what two cores suffice for runs as real processes.
"""

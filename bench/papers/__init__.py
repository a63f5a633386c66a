"""The experiments of the papers that gapless comes from, done again: `python -m bench papers NAME`.

000 is "Reliable and Highly Available Distributed Publish/Subscribe Service" (SRDS 2009), 001 "Scalably Supporting
Durable Subscriptions in a Publish/Subscribe System" (DSN 2003), 002 "Exactly-once Delivery in a Content-based
Publish-Subscribe System" (DSN 2002). What needs many machines runs in virtual time: in the simulator with the cores of
production, or as routers alone (`brokers`), of which there may be hundreds. What two cores suffice for runs as real
processes.
"""

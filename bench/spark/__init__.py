"""`python -m bench spark`: gapless as a source of Spark, beside what would be in its place.

Every system serves the same events to the same local Spark, in batches of the same size, into a sink that keeps
nothing; figures are those of Spark's own query progress. What a system is: `contender.py`. What is asked of each:
`work.py`.
"""

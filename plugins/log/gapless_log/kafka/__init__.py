"""Apache Kafka as others keep it: its requests, and what stands in its logs. It knows nothing of our protocol.

`wire` has Kafka's plain types, `messages` the requests and their answers in bytes, `requests` sends them over a
connection, and `records` reads the batches that a fetch returns. The last two need `gapless[kafka]`.
"""

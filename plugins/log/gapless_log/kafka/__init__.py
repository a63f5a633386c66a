"""Apache Kafka topics as logs of pubends. Whoever connects, or reads records, needs `gapless[kafka]`.

| module | what it knows |
|---|---|
| `wire`, `messages` | Kafka's requests and their answers, in bytes: no I/O, and nothing of our protocol |
| `records` | record batches: what a fetch returns and a produce takes |
| `requests` | one connection to one broker; beside `records`, nothing else uses aiokafka |
| `cluster`, `topics` | the connections to a cluster, and what its topics are like |
| `lineage`, `mapping`, `format` | what offsets are as ticks, and records as events |
| `tail` | one partition as it is followed: no I/O |
| `survey` | what is found out about a log: places, ranges, leader epochs, what became of it |
| `logs`, `plugin`, `options` | the conversation with a node's roles, the hook, and what can be configured |
"""

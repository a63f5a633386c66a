"""The systems of the race, in the order in which the report shows them."""

from __future__ import annotations

from bench.peers.system import System
from bench.peers.systems.activemq import ActiveMq
from bench.peers.systems.gateway import OnKafka, ToKafka
from bench.peers.systems.kafka import AioKafka, Kafka
from bench.peers.systems.limit import Limit
from bench.peers.systems.nats import Nats
from bench.peers.systems.ours import Gapless
from bench.peers.systems.rabbitmq import RabbitMq
from bench.peers.systems.rabbitmq_streams import RabbitMqStreams
from bench.peers.systems.redis import Redis

SYSTEMS: dict[str, System] = {
    "gapless": Gapless(),
    "nats": Nats(),
    "nats-always": Nats(sync_always=True),
    "kafka": Kafka(),
    "kafka-aio": AioKafka(),
    "redis": Redis(),
    "rabbitmq": RabbitMq(),
    "rabbitmq-streams": RabbitMqStreams(),
    "activemq": ActiveMq(),
    "limit": Limit(),
    "gapless-on-kafka": OnKafka(),
    "gapless-to-kafka": ToKafka(),
}
"""Every system by the name that the command line and the figures know it by."""
RACERS = [name for name in SYSTEMS if "-kafka" not in name]
"""Those that run unless others are asked for: what Kafka is as a log of gapless, `bench kafka` measures."""

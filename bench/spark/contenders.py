"""All systems, by their names."""

from __future__ import annotations

from typing import Final

from bench.rounds import OURS
from bench.spark.contender import Contender
from bench.spark.kafka import PythonKafka, SparkKafka
from bench.spark.limits import Parquet, Rate
from bench.spark.ours import Gapless

CONTENDERS: Final[dict[str, Contender]] = {
    OURS: Gapless(),
    "kafka-python": PythonKafka(),
    "kafka-spark": SparkKafka(),
    "parquet": Parquet(),
    "rate": Rate(),
}

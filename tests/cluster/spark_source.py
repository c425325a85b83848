"""Kafka's Spark source, in a process of its own: ``python -m tests.cluster.spark_source JARS SERVER DIR``.

Reads the three partitions of the offsets topic with either isolation level, as the manual shows, and writes
what comes as Parquet into a directory named by the level.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(jars: str, server: str, output: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        # The other way asks for the list of topics, in which internal ones are not: it reads nothing.
        .config("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
        .getOrCreate()
    )
    for level in ("read_committed", "read_uncommitted"):
        (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", server)
            .option("kafka.isolation.level", level)
            # To subscribe is to join a group, which writes to this very topic.
            .option("assign", '{"__consumer_offsets": [0, 1, 2]}')
            .option("startingOffsets", "earliest")
            .option("includeHeaders", True)
            .load()
            .write.parquet(f"{output}/{level}")
        )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

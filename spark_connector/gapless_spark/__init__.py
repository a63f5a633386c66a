"""The Spark connector: a durable consumer whose Spark offset is a checkpoint token. Nothing in it yet."""

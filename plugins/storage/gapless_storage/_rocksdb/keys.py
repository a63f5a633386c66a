"""What the probe needs to know of the layout. It imports nothing, because a child must start fast."""

LOG_FAMILY = "log"
"""The column family of all records; the other one is RocksDB's own "default"."""

MARK_KEY = b"\x00mark"
"""Where the newest batch's mark is in the default family …"""
LOG_MARK_KEY = b"\xff\xff\xff\xff" + bytes(8)
"""… and in the log family: behind all records."""

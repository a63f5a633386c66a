"""What the RocksDB storage is made of; `gapless_storage.rocksdb` is the plugin.

rocksdb.py   the volume: staging, write, sync, failure, reclaim
  streams.py   streams, tables and what they keep about sizes
  opening.py   creating and opening: who may open, and whether anything that was durable is missing
    identity.py   the file that says whose volume a directory is
    seal.py       what the database's files were at a clean close: then the checks below are skipped
    watchdog.py   a verifying open in a child process, with a deadline …
      probe.py      … and what the child does
    wal.py        RocksDB's write-ahead log, read by ourselves: what is there without a hole
    fence.py      the last durable batch, in a file of its own, outside RocksDB
  engine.py    rocksdict with its traps closed; nothing else but the probe imports it
  layout.py    how keys are made, and the mark that every batch carries
  keys.py      the few keys that the probe needs
  files.py     writing files durably, and the lock on a directory
"""

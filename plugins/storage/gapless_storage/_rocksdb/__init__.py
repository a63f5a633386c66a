"""What the RocksDB storage is made of; `gapless_storage.rocksdb` is the plugin.

| module      | what it holds                                                                             |
|-------------|-------------------------------------------------------------------------------------------|
| `opening`   | creating and opening: who may, and whether anything that was durable is missing           |
| `identity`  | the file that says whose volume a directory is                                            |
| `fence`     | the last durable batch, in a file of its own, outside RocksDB                             |
| `seal`      | what the database's files were at a clean close: the same files need no check             |
| `watchdog`  | a verifying open with a deadline, in a child process; `probe` is what the child does      |
| `wal`       | RocksDB's write-ahead log, read by ourselves: what is there without a hole                |
| `manifest`  | RocksDB's list of files, when a power cut has spoilt its end; `logformat` is that of both |
| `engine`    | rocksdict with its traps closed; beside the probe, nothing else imports it                |
| `streams`   | streams and tables, and what they keep about sizes                                        |
| `layout`    | how keys are made, and the mark that every batch carries; `keys` is what the probe needs  |
| `files`     | files that survive a power cut, and the lock on a directory                               |
| `forks`     | what a forked child does with the databases of its parent: nothing                        |
"""

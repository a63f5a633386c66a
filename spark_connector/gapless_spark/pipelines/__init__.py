"""The pipelines that people run: they write events into an archive of Parquet files, and read them again.

    archive       a subscription into an archive, each event once: `archive.archive`
    compaction    many small files of an archive into few: `compaction.compact`
    replay        a range of an archive to a topic, each event once: `replay.replay`
    heal          a gap filled from an archive: `heal.heal`
    manifest      the files of an archive on the disk; `contents` what is in them
    cli           all of it as `gapless pipeline …`

Only `archive` needs Spark. All but `manifest` need pyarrow.
"""

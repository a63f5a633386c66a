"""What a pipeline learns from a query of Spark's; how it runs one, test_archive.py shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.errors import ArchiveError
from gapless_spark.offsets import offset_of
from gapless_spark.pipelines.batch_query import end_of, reason_of
from unit.gapless_spark.pipelines.archives import P, token


def test_where_a_batch_ends_is_in_the_log_of_spark(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    log = tmp_path / "offsets" / "3"
    log.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset_of(token({P: 5}))}')
    assert end_of(tmp_path, 3) == token({P: 5})

    log.write_text("v7\n{}")
    with pytest.raises(ArchiveError, match="which version of Spark is this"):
        end_of(tmp_path, 3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[X] failed\n  a.py\nGAPLESS_UNREACHABLE x: not within 60 s\n at org",
            "GAPLESS_UNREACHABLE x: not within 60 s",
        ),
        ("[X] Y\nTraceback\n  a\ngapless.errors.TokenAheadError: it has lost it\n\n at org", "it has lost it"),
        ("something else\nmore", "something else"),
        ("", "ValueError"),
    ],
)
def test_a_page_of_spark_is_a_sentence(text: str, reason: str) -> None:
    assert reason_of(ValueError(text)) == reason

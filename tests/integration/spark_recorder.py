"""A source that writes down what Spark calls: the real one, and a line of JSON for each call."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapless_spark.source import GaplessDataSource, GaplessStreamReader


class RecordingDataSource(GaplessDataSource):
    """As the real one, under another name. Option `trace`: the file of the lines; `fail`: a file that makes it fail."""

    @classmethod
    def name(cls) -> str:
        return "recorded"

    def schema(self) -> str:
        _note(self.options["trace"], "schema", [])
        return super().schema()

    def streamReader(self, schema: Any) -> GaplessStreamReader:  # noqa: N802 - Spark's name
        real = super().streamReader(schema)
        return RecordingReader(self.options["trace"], self.options["fail"], real._options, real._names)


class RecordingReader(GaplessStreamReader):
    """As the real one; a call is noted when it returns or raises, and a read when it begins."""

    def __init__(self, trace: str, fail: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._trace = trace
        self._fail = fail
        _note(trace, "__init__", [])

    def initialOffset(self) -> Any:  # noqa: N802 - Spark's name
        return self._noted("initialOffset")

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        return self._noted("getDefaultReadLimit")

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._noted("prepareForTriggerAvailableNow")

    def latestOffset(self, *arguments: Any, **named: Any) -> Any:  # noqa: N802 - Spark's name
        if Path(self._fail).exists():
            _note(self._trace, "latestOffset", [*arguments, *named.values()], "raises")
            raise RuntimeError("as it was told to")
        return self._noted("latestOffset", *arguments, **named)

    def reportLatestOffset(self) -> Any:  # noqa: N802 - Spark's name
        return self._noted("reportLatestOffset")

    def partitions(self, start: Any, end: Any) -> Any:
        return self._noted("partitions", start, end)

    def read(self, partition: Any) -> Iterator[Any]:
        _note(self._trace, "read", [])
        yield from super().read(partition)

    def commit(self, end: Any) -> None:
        self._noted("commit", end)

    def stop(self) -> None:
        self._noted("stop")

    def _noted(self, method: str, *arguments: Any, **named: Any) -> Any:
        result = getattr(GaplessStreamReader, method)(self, *arguments, **named)
        _note(self._trace, method, [*arguments, *named.values()], result)
        return result


def _note(trace: str, call: str, arguments: list[Any], result: Any = None) -> None:
    line = {"process": os.getpid(), "call": call, "arguments": arguments, "result": result}
    with open(trace, "a", encoding="utf-8") as file:  # noqa: PTH123 - one write to its end, from several processes
        file.write(json.dumps(line, default=_named) + "\n")


def _named(value: Any) -> str:
    return type(value).__name__

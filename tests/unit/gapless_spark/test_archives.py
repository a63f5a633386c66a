"""Spark's archives are read once by a process, and not before each task; they can still be imported from."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from gapless_spark.archives import spare_archives


@pytest.mark.parametrize(
    ("name", "spared"),
    [("pyspark.zip", True), ("py4j-1-src.zip", True), ("spark-core_9.jar", True), ("own.zip", False)],
)
def test_sparks_own_archives_are_spared(
    name: str, spared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"archived_{name.partition('.')[0].replace('-', '_')}"
    archive = tmp_path / name
    with ZipFile(archive, "w") as file:
        file.writestr(f"{module}.py", "ANSWER = 42")
        file.writestr(f"{module}_too.py", "ANSWER = 43")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module(module).ANSWER == 42
    assert isinstance(sys.path_importer_cache[str(archive)], zipimporter)

    spare_archives()

    assert (str(archive) not in sys.path_importer_cache) == spared
    importlib.invalidate_caches()
    assert importlib.import_module(f"{module}_too").ANSWER == 43

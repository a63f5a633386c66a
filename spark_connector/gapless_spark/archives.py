"""Keeps Spark's Python processes from reading Spark's own archives anew for each batch.

Before each task, and before each planning, Spark invalidates the caches of Python's import system. Python then reads
the directory of every archive again from which modules may come. Spark's archives are among them: thousands of entries,
about a tenth of a second for each process in each batch, whatever the batch contains. These archives do not change
while Spark runs. So this module takes them out of the cache of finders. Nothing is lost: the next import from one makes
a finder again, from the directory that `zipimport` keeps. Archives of the user stay in the cache.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final
from zipimport import zipimporter

SPARKS_OWN: Final = ("pyspark.zip", "py4j-", "spark-core_")
"""The beginnings of the names of Spark's archives, wherever they lie."""


def spare_archives() -> None:
    """Takes Spark's archives out of the cache of this process. It is called in each task, and costs microseconds."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and Path(finder.archive).name.startswith(SPARKS_OWN):
            del sys.path_importer_cache[path]

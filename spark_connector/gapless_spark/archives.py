"""Spark's own archives, which its Python processes would read anew for each batch.

Before each task, and before each planning, Spark invalidates the caches of Python's import system. Python then reads
the directory of every archive again that modules may come from, and among those are Spark's: thousands of entries,
some tenth of a second for each process, in each batch, whatever is in it. They do not change while Spark runs. So they
are taken out of the cache of finders, where nothing of them is lost: who imports from one makes a finder for it again,
from the directory that `zipimport` keeps. Archives of the user's stay where they are.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final
from zipimport import zipimporter

SPARKS_OWN: Final = ("pyspark.zip", "py4j-", "spark-core_")
"""How the names of its archives begin, wherever they lie."""


def spare_archives() -> None:
    """Keeps this process from reading them anew. Called in each task; costs microseconds."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and Path(finder.archive).name.startswith(SPARKS_OWN):
            del sys.path_importer_cache[path]

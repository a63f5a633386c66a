"""File descriptors: how many a process may have, and what of them is for whom.

Sockets, the files of a volume and all else share one limit. A storage that cannot open a file has failed, and whoever
connects comes again. So the storage gets its share first, and connections stop where that begins.
"""

from __future__ import annotations

import sys
from typing import Final

if sys.platform != "win32":
    import resource

UNKNOWN: Final = 1000
"""Taken for the limit where the system does not tell it."""
STORAGE_MAX: Final = 256
"""So many the files of a volume take at the most: a long log has many."""
OTHERS_MAX: Final = 64
"""So many are for all else: logs, links to other nodes, files that are written, and what the program itself opens."""


def limit() -> int:
    """Returns how many files this process may have open."""
    if sys.platform == "win32":
        return UNKNOWN
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def for_storage() -> int:
    """Returns how many the files of a volume may take: a quarter of a small limit."""
    return max(1, min(STORAGE_MAX, limit() // 4))


def for_connections() -> int:
    """Returns how many connections may be there: what neither the storage nor anything else needs."""
    most = limit()
    return max(1, most - for_storage() - min(OTHERS_MAX, most // 4))

"""A node whose router `delta` reports to nobody what it has: everything else is as ever.

python -m bench.papers.unreported broker …

Without reports no event is ever safe, so each stays in the cache until there is no room: what a router spends on
reports is what this one does not spend. It takes what `gapless` takes.
"""

from __future__ import annotations

from unittest.mock import patch

from gapless.cli import main
from gapless_routing.delta.copies import Copies

if __name__ == "__main__":
    with patch.object(Copies, "_report", lambda *_: {}):
        main()

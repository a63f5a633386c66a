"""What comes again after whose death in which acknowledgement mode: docs/topics/crash-table.md (J1, J2, J4).

After a change that is meant, set REWRITE_CRASH_TABLE=1 to write its rows anew.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from documents import ROOT
from integration.crash_table import APPLICATION, BETWEEN, MOMENTS, Fleet, Round, complaints, one_broker, rows, two_nodes

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL"),
]

PAGE = ROOT / "docs" / "topics" / "crash-table.md"
REWRITE = os.environ.get("REWRITE_CRASH_TABLE") == "1"
Kind: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Fleet]]
DEATHS: dict[str, tuple[Kind, list[str]]] = {
    "application": (one_broker, [APPLICATION]),
    "broker": (one_broker, ["broker"]),
    "application and broker": (one_broker, [APPLICATION, "broker"]),
    "PHB": (two_nodes, ["PHB"]),
    "SHB": (two_nodes, ["SHB"]),
    "application and PHB": (two_nodes, [APPLICATION, "PHB"]),
    "application and SHB": (two_nodes, [APPLICATION, "SHB"]),
    "application, PHB and SHB": (two_nodes, [APPLICATION, "PHB", "SHB"]),
}


@pytest.mark.parametrize("killed", DEATHS)
async def test_nothing_committed_comes_again_and_nothing_is_lost(tmp_path: Path, killed: str) -> None:
    kind, victims = DEATHS[killed]
    dies = APPLICATION in victims
    async with kind(tmp_path) as fleet:
        found = await Round(tmp_path, fleet, victims).run()

    assert [complaint for cell, each in found.items() for complaint in complaints(cell, each, dies=dies)] == []
    moments = MOMENTS if kind is one_broker else MOMENTS + BETWEEN
    table = rows(found, killed, moments, dies=dies)
    sys.stdout.write("\n".join(table))
    page = PAGE.read_text("utf-8").splitlines()
    if REWRITE:
        anew = {row.split(" | ")[0]: row for row in table}
        lines = [anew[line.split(" | ")[0]] if f" | {killed} | " in line else line for line in page]
        PAGE.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return
    assert [row for row in table if row not in page] == []

"""The plugin of docs/howto/write-a-storage-plugin.md, and the test that page ends with."""

from __future__ import annotations

import atexit
import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

from documents import ROOT, code_blocks

PAGE = ROOT / "docs" / "howto" / "write-a-storage-plugin.md"
DIRECTORY = Path(tempfile.mkdtemp(prefix="gapless-page-"))
atexit.register(shutil.rmtree, DIRECTORY, ignore_errors=True)

pytestmark = pytest.mark.timeout(300)


def module_of_the_page(name: str) -> ModuleType:
    """A block as the module that its reader would save it as: in a file, for other processes import it too."""
    for block in code_blocks(PAGE, "python"):
        assert block.file_name is not None
        (DIRECTORY / block.file_name).write_text(block.code, "utf-8")
    if str(DIRECTORY) not in sys.path:
        sys.path.append(str(DIRECTORY))
    return importlib.import_module(name)


class TestThePage(module_of_the_page("test_slow_storage").TestSlowStorage):  # type: ignore[misc]
    """All of the suite."""

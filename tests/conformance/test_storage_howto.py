"""The plugin of docs/howto/write-a-storage-plugin.md, and the test that page ends with."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from documents import ROOT, code_blocks

PAGE = ROOT / "docs" / "howto" / "write-a-storage-plugin.md"

pytestmark = pytest.mark.timeout(300)


def modules_of_the_page() -> dict[str, ModuleType]:
    """Each block as the module that its reader would save it as."""
    modules = {}
    for block in code_blocks(PAGE, "python"):
        assert block.file_name is not None
        module = ModuleType(block.file_name.removesuffix(".py"))
        sys.modules[module.__name__] = module
        exec(compile(block.code, str(PAGE), "exec"), vars(module))
        modules[module.__name__] = module
    return modules


class TestThePage(modules_of_the_page()["test_slow_storage"].TestSlowStorage):  # type: ignore[misc]
    """All of the suite."""

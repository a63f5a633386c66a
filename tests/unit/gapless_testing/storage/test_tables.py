"""The suite's tests of tables notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import Breach
from gapless_storage._memory import Rows
from gapless_storage.memory import MemoryTable, MemoryVolume
from gapless_testing.storage.tables import TableTests as Suite

BREACHES = [
    Breach(MemoryTable, "put", broken.put_row_at_once, Suite.test_a_row_is_seen_once_it_is_written),
    Breach(MemoryTable, "delete", broken.delete_nothing, Suite.test_a_row_is_gone_once_that_is_written),
    Breach(MemoryTable, "delete", broken.delete_what_is_there, Suite.test_the_last_word_of_a_batch_counts),
    Breach(MemoryTable, "get", broken.get_without_empty, Suite.test_a_value_is_replaced),
    Breach(Rows, "scan", broken.scan_unsorted, Suite.test_keys_come_in_order),
    Breach(Rows, "scan", broken.scan_everything, Suite.test_a_scan_keeps_to_its_prefix),
    Breach(Rows, "scan", broken.scan_to_a_bound, Suite.test_a_scan_keeps_to_its_prefix),
    Breach(MemoryTable, "scan", broken.scan_live, Suite.test_a_scan_shows_the_table_as_of_the_call),
    Breach(MemoryVolume, "table", broken.one_table, Suite.test_tables_do_not_mix),
    Breach(MemoryVolume, "table", broken.one_table, Suite.test_one_name_is_one_object),
    Breach(Rows, "scan", lambda self, _: sorted(self.values.items())[:1000], Suite.test_many_and_large_rows),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)

"""What a table promises while its volume is open."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from gapless.spi import LogVolume, Table
from gapless_testing.storage.harness import HarnessFixtures, lacks, same

KEY_BYTES_MAX = 520
"""The longest key: the number of a subscription and the id of a pubend."""
HARD_KEYS = [b"", b"\x00", b"a", b"a\x00", b"a\xff", b"a\xff\xff", b"ab", b"b", b"\xfe", b"\xff", b"\xff\xff"]


class TableTests(HarnessFixtures):
    """Rows, prefixes and order."""

    def test_a_new_table_is_empty(self, volume: LogVolume) -> None:
        table = volume.table("subscriptions")

        assert lacks(table, Table) == []
        assert table.name == "subscriptions"
        assert table.get(b"key") is None
        assert list(table.scan()) == []

    def test_one_name_is_one_object(self, volume: LogVolume) -> None:
        assert volume.table("a") is volume.table("a")
        assert volume.table("a") is not volume.table("b")

    def test_a_row_is_seen_once_it_is_written(self, volume: LogVolume) -> None:
        table = volume.table("t")

        table.put(b"key", b"value")
        before = (table.get(b"key"), list(table.scan()))
        volume.write()

        assert before == (None, [])
        assert table.get(b"key") == b"value"
        assert list(table.scan()) == [(b"key", b"value")]

    def test_a_row_is_gone_once_that_is_written(self, volume: LogVolume) -> None:
        table = volume.table("t")
        table.put(b"key", b"value")
        volume.write()

        table.delete(b"key")
        before = table.get(b"key")
        volume.write()

        assert before == b"value"
        assert table.get(b"key") is None
        assert list(table.scan()) == []

    def test_the_last_word_of_a_batch_counts(self, volume: LogVolume) -> None:
        table = volume.table("t")

        table.put(b"kept", b"1")
        table.delete(b"kept")
        table.put(b"kept", b"2")
        table.put(b"gone", b"1")
        table.delete(b"gone")
        volume.write()

        assert list(table.scan()) == [(b"kept", b"2")]

    def test_a_value_is_replaced(self, volume: LogVolume) -> None:
        table = volume.table("t")
        for value in (b"long value", b"", b"x"):
            table.put(b"key", value)
            volume.write()

            assert table.get(b"key") == value

    def test_deleting_what_is_not_there_is_no_error(self, volume: LogVolume) -> None:
        table = volume.table("t")

        table.delete(b"nothing")
        volume.write()

        assert list(table.scan()) == []

    def test_keys_come_in_order(self, volume: LogVolume) -> None:
        """As bytes, the empty one and those of highest bytes too."""
        table = volume.table("t")
        for key in reversed(HARD_KEYS):
            table.put(key, b"value of " + key)
            volume.write()

        assert list(table.scan()) == [(key, b"value of " + key) for key in sorted(HARD_KEYS)]
        assert [table.get(key) for key in HARD_KEYS] == [b"value of " + key for key in HARD_KEYS]

    def test_a_scan_keeps_to_its_prefix(self, volume: LogVolume) -> None:
        table = volume.table("t")
        for key in HARD_KEYS:
            table.put(key, b"")
        volume.write()

        for prefix in [*HARD_KEYS, b"c", b"a\xff\xff\xff"]:
            expected = sorted(key for key in HARD_KEYS if key.startswith(prefix))
            same([key for key, _ in table.scan(prefix)], expected, f"the keys that begin with {prefix!r}")

    def test_a_scan_shows_the_table_as_of_the_call(self, volume: LogVolume) -> None:
        table = volume.table("t")
        for number in range(10):
            table.put(b"%d" % number, b"old")
        volume.write()

        scan = table.scan()
        first = next(scan)
        table.put(b"5", b"new")
        table.put(b"55", b"new")
        table.delete(b"7")
        volume.write()

        assert [first, *scan] == [(b"%d" % number, b"old") for number in range(10)]

    def test_tables_do_not_mix(self, volume: LogVolume) -> None:
        names = ["t", "tt", "t.t", "T", "", "τ"]
        for name in names:
            for key in (b"", b"t", b"\xff"):
                volume.table(name).put(key, name.encode() + key)
        volume.write()

        for name in names:
            assert list(volume.table(name).scan()) == [(key, name.encode() + key) for key in (b"", b"t", b"\xff")]

    def test_long_keys_differ_in_their_last_byte(self, volume: LogVolume) -> None:
        for size in (250, 255, 256, 511, 512, KEY_BYTES_MAX):
            self._long_keys_differ(volume, volume.table(f"keys of {size} bytes"), size)

    @staticmethod
    def _long_keys_differ(volume: LogVolume, table: Table, size: int) -> None:
        keys = [b"k" * (size - 1) + bytes([last]) for last in (0, 1, 127, 128, 255)] + [b"k" * (size - 1), b"k" * 100]
        for number, key in enumerate(keys):
            table.put(key, b"%d" % number)
        volume.write()
        table.delete(keys[1])
        volume.write()
        left = {key: b"%d" % number for number, key in enumerate(keys) if number != 1}

        same(table.scan(), sorted(left.items()), f"the rows with keys of up to {size} bytes")
        assert [table.get(key) for key in keys] == [left.get(key) for key in keys]
        assert [key for key, _ in table.scan(b"k" * (size - 1))] == sorted(set(left) - {b"k" * 100})

    def test_many_and_large_rows(self, volume: LogVolume) -> None:
        table = volume.table("t")
        expected = {b"%05d" % number: b"%d" % number * 10 for number in range(2000)}
        expected[b"large"] = bytes(range(256)) * 4096
        for key, value in expected.items():
            table.put(key, value)
        volume.write()
        volume.sync()

        assert dict(table.scan()) == expected
        assert table.get(b"large") == expected[b"large"]
        assert [key for key, _ in table.scan(b"0012")] == [b"%05d" % number for number in range(120, 130)]

"""The README's program and the tutorial do what they say, as a reader would run them."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from documents import ROOT, code_blocks

TUTORIAL = ROOT / "docs" / "tutorial" / "first-subscription.md"


def run(directory: Path, *command: str, status: int = 0) -> str:
    """Runs a Python program in the reader's directory and returns what it printed."""
    done = subprocess.run(
        [sys.executable, *command], cwd=directory, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == status, done.stderr
    return done.stdout


@contextmanager
def broker(directory: Path, arguments: str) -> Iterator[str]:
    """A broker that a page tells the reader to start, on a free port; its URL."""
    command = [sys.executable, "-m", "gapless.cli", *arguments.split(), "--json", "--until-stdin-closes"]
    environment = {**os.environ, "GAPLESS_LISTEN__0__ADDRESS": "127.0.0.1:0"}
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


def test_the_readme_runs(tmp_path: Path) -> None:
    """Twice, because a durable subscription is still there the second time."""
    [program] = code_blocks(ROOT / "README.md", "python")
    (tmp_path / "readme.py").write_text(program.code, "utf-8")

    for _ in range(2):
        assert "B6 1016 is late by 75 minutes" in run(tmp_path, "readme.py")


def test_the_job_that_reads_by_ranges_runs(tmp_path: Path) -> None:
    """What the tutorial deposits, copied once however often it is run."""
    for document in (TUTORIAL, ROOT / "docs" / "howto" / "read-by-ranges.md"):
        for block in code_blocks(document, "python"):
            if block.file_name in {"deposit.py", "collect.py"}:
                (tmp_path / block.file_name).write_text(block.code, "utf-8")

    run(tmp_path, "deposit.py")
    first = run(tmp_path, "collect.py")
    assert run(tmp_path, "collect.py") == first == "4 payments\n"
    run(tmp_path, "deposit.py")
    assert run(tmp_path, "collect.py") == "8 payments\n"


def test_the_example_of_acknowledgement_modes_runs(tmp_path: Path) -> None:
    [program] = code_blocks(ROOT / "docs" / "howto" / "choose-an-ack-mode.md", "python")
    (tmp_path / "alarms.py").write_text(program.code, "utf-8")

    assert run(tmp_path, "alarms.py") == "fire\nflood\nover\nthen: another fire\n"


def test_the_example_of_the_jms_style_profile_runs(tmp_path: Path) -> None:
    [program] = code_blocks(ROOT / "docs" / "howto" / "come-from-jms.md", "python")
    (tmp_path / "orders.py").write_text(program.code, "utf-8")

    assert run(tmp_path, "orders.py") == "a large one 250 False\n{'customer': 'ada', 'total': 980.5}\n"


def test_the_programs_for_who_comes_from_kafka_run(tmp_path: Path) -> None:
    [program] = code_blocks(ROOT / "docs" / "howto" / "come-from-kafka.md", "python")
    (tmp_path / "from_kafka.py").write_text(program.code, "utf-8")

    assert run(tmp_path, "from_kafka.py") == "hall 19\nattic 31\ncellar 12\nalarm: attic\nwarm rooms: 2\n"


def test_the_example_of_a_token_in_a_database_runs(tmp_path: Path) -> None:
    for program in code_blocks(ROOT / "docs" / "howto" / "store-the-token-in-a-database.md", "python"):
        assert program.file_name
        directory = tmp_path / program.file_name
        directory.mkdir()
        (directory / program.file_name).write_text(program.code, "utf-8")

        assert run(directory, program.file_name) == "[('ada', 100), ('bob', 20)]\n"
        assert run(directory, program.file_name) == "[('ada', 200), ('bob', 40)]\n"


def test_the_example_without_a_database_runs(tmp_path: Path) -> None:
    [program] = code_blocks(ROOT / "docs" / "howto" / "exactly-once-without-a-database.md", "python")
    (tmp_path / "invoicing.py").write_text(program.code, "utf-8")

    assert run(tmp_path, "invoicing.py") == "2 invoices, 22 in all\n"
    assert run(tmp_path, "invoicing.py") == "4 invoices, 44 in all\n"


class Reader:
    """Follows the tutorial in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for block in code_blocks(TUTORIAL, "python"):
            assert block.file_name, f"the block of line {block.line} does not say what to save it as"
            (directory / block.file_name).write_text(block.code, "utf-8")
        source = (directory / "deposit.py").read_text("utf-8").partition("PAYMENTS = ")[2].partition("\n")[0]
        self.payments: list[tuple[str, int]] = ast.literal_eval(source)

    @property
    def selected(self) -> list[str]:
        """What `balance.py` should print for one run of `deposit.py`."""
        return [f"{account} {amount}" for account, amount in self.payments if amount >= 100]

    def consume(self, count: int) -> list[str]:
        """Runs `balance.py` until it has printed `count` lines, then presses Ctrl-C; returns all lines."""
        command = [sys.executable, "balance.py"]
        with subprocess.Popen(command, cwd=self.directory, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                lines = [process.stdout.readline().strip() for _ in range(count)]
                process.send_signal(signal.SIGINT)
                lines += process.stdout.read().splitlines()
            except BaseException:  # the time limit of the test, say: nothing may go on running
                process.kill()
                raise
        assert process.returncode == 0
        return lines

    @contextmanager
    def broker_of_its_own(self) -> Iterator[None]:
        """Does what the last section says: starts the broker of the page, and has both programs go to it."""
        [arguments] = re.findall(r"^\$ gapless (broker.*)$", TUTORIAL.read_text("utf-8"), re.MULTILINE)
        with broker(self.directory, arguments) as url:
            for program in self.directory.glob("*.py"):
                text = program.read_text("utf-8")
                assert "embedded:./bank" in text
                program.write_text(text.replace("embedded:./bank", url), "utf-8")
            yield

    def balance(self) -> dict[str, int]:
        """The sums that `balance.py` keeps."""
        with sqlite3.connect(self.directory / "balance.sqlite") as db:
            rows = dict(db.execute("SELECT account, amount FROM balance"))
        db.close()
        return rows

    def expected(self, times: int) -> dict[str, int]:
        """What the sums should be when `deposit.py` has run so many times."""
        sums: dict[str, int] = {}
        for account, amount in self.payments:
            if amount >= 100:
                sums[account] = sums.get(account, 0) + amount * times
        return sums


@pytest.mark.skipif(sys.platform == "win32", reason="the tutorial's signal handler needs POSIX")
def test_the_tutorial_runs(tmp_path: Path) -> None:
    """With its two crashes, once more from the stored token, and then through a broker that takes the data over."""
    reader = Reader(tmp_path)

    assert len(run(tmp_path, "deposit.py").splitlines()) == len(reader.payments)
    crashed = [run(tmp_path, "balance.py", "--crash", status=1).strip() for _ in range(2)]
    assert crashed == reader.selected[:2]
    assert reader.consume(len(reader.selected) - 2) == reader.selected[2:]
    assert reader.balance() == reader.expected(times=1)

    run(tmp_path, "deposit.py")
    assert reader.consume(len(reader.selected)) == reader.selected
    assert reader.balance() == reader.expected(times=2)

    with reader.broker_of_its_own():
        run(tmp_path, "deposit.py")
        assert reader.consume(len(reader.selected)) == reader.selected
        assert reader.balance() == reader.expected(times=3)


@pytest.mark.skipif(sys.platform == "win32", reason="the tutorial's signal handler needs POSIX")
def test_the_tutorial_for_workers_runs(tmp_path: Path) -> None:
    """Two workers share ten letters; one of them is killed, and the other one does the rest."""
    page = ROOT / "docs" / "tutorial" / "workers.md"
    [arguments] = re.findall(r"^\$ gapless (broker.*)$", page.read_text("utf-8"), re.MULTILINE)
    with broker(tmp_path, arguments) as url:
        for block in code_blocks(page, "python"):
            if block.file_name:
                code = block.code.replace("gapless://127.0.0.1:7400", url)
                assert code != block.code
                (tmp_path / block.file_name).write_text(code, "utf-8")
        command = [sys.executable, "worker.py"]
        with (
            subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as first,
            subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as second,
        ):
            try:
                assert first.stdout is not None
                assert second.stdout is not None
                run(tmp_path, "order.py")
                lines = [first.stdout.readline()]
                first.kill()
                lines += first.stdout.read().splitlines()
                while len(done := {line.split(" in process")[0] for line in lines}) < 10 or not any(
                    line.startswith("letter 7") and "for the time" in line for line in lines
                ):
                    line = second.stdout.readline()
                    assert line, done
                    lines.append(line)
                second.send_signal(signal.SIGINT)
                lines += second.stdout.read().splitlines()
            except BaseException:  # the time limit of the test, say: nothing may go on running
                first.kill()
                second.kill()
                raise
        assert second.returncode == 0
    assert done == {f"letter {number}" for number in range(10)}


def test_the_readme_runs_through_a_broker_that_takes_the_data_over(tmp_path: Path) -> None:
    """With the very command that it names, and nothing else changed but the address."""
    readme = (ROOT / "README.md").read_text("utf-8")
    [program] = code_blocks(ROOT / "README.md", "python")
    (tmp_path / "readme.py").write_text(program.code, "utf-8")
    run(tmp_path, "readme.py")
    [arguments] = re.findall(r"`gapless (broker --data \S+)`", readme)
    with broker(tmp_path, arguments) as url:
        (tmp_path / "readme.py").write_text(program.code.replace("embedded:./data", url), "utf-8")
        through_broker = run(tmp_path, "readme.py")

    assert "B6 1016 is late by 75 minutes" in through_broker

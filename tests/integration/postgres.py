"""A PostgreSQL of one test run's own: a cluster in a folder, reached by a Unix socket there, with one database."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg


def programs() -> Path | None:
    """Where `initdb` and `postgres` are; None: PostgreSQL is not installed."""
    found = shutil.which("initdb")
    installed = [Path(found).resolve()] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


class Postgres:
    """A server that can be killed and started again; its files stay."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self._folder = folder
        self._bin = bin_folder
        # PostgreSQL refuses to run as root; its packages bring this user.
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        data = ["--pgdata", f"{folder}/data", "--username=gapless", "--auth=trust", "--no-locale", "--encoding=UTF8"]
        subprocess.run([f"{bin_folder}/initdb", *data], user=self._user, cwd=folder, check=True, capture_output=True)

    @property
    def address(self) -> str:
        """What libpq connects to."""
        return f"host={self._folder} user=gapless dbname=postgres"

    @property
    def url(self) -> str:
        """The same, for SQLAlchemy."""
        return f"postgresql+psycopg://gapless@/postgres?host={self._folder}"

    def start(self) -> None:
        """Starts it, and returns when it takes connections."""
        end = time.monotonic() + 30
        while not self._comes_up(end):
            assert time.monotonic() < end, "PostgreSQL does not start"
            time.sleep(0.1)

    def _comes_up(self, end: float) -> bool:
        """One attempt. It fails as long as workers of a server that was killed have not ended yet."""
        settings = [f"--unix_socket_directories={self._folder}", "--listen_addresses=", "--max_connections=20"]
        self._process = subprocess.Popen(
            [f"{self._bin}/postgres", "-D", f"{self._folder}/data", *settings],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while self._process.poll() is None and time.monotonic() < end:
            try:
                psycopg.connect(self.address).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return True
        return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends it: SIGINT in order, connections or not; SIGKILL as a crash, after which workers end by themselves."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


@contextmanager
def running(bin_folder: Path) -> Iterator[Postgres]:
    """Runs a server of its own while this lasts."""
    # Not below pytest's folders: another user must get there, and the path of a socket has about 100 characters.
    with tempfile.TemporaryDirectory(prefix="gapless-postgres-") as folder:
        server = Postgres(Path(folder), bin_folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()

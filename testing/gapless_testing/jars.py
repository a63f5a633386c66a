"""Servers that are jars of Maven Central: a directory of them is all that a JVM needs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FETCH_SECONDS_MAX: Final = 600
"""How long Maven may take."""
_TOLD_EVERY: Final = 10


class JarsUnavailableError(Exception):
    """The jars are not here and cannot be fetched, or there is no Java; says what to install."""


@dataclass(frozen=True)
class Jars:
    """What a POM depends on, kept in the user's cache once it has been fetched."""

    name: str
    pom: Path
    settings: tuple[str, ...] = ()
    """Of Maven, for this POM."""

    @property
    def directory(self) -> Path:
        """Where they are kept: another POM, or other settings, have another place."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        content = repr((self.pom.read_bytes(), self.settings)).encode()
        return cache / "gapless" / "jars" / f"{self.name}-{hashlib.sha256(content).hexdigest()[:16]}"

    @property
    def class_path(self) -> str:
        """All of them, for java's `-cp`; no shell is to see it."""
        return f"{self.directory}/*"

    def fetch(self, tell: Callable[[str], object]) -> None:
        """Fetches them unless they are there, and tells how that goes. Raises JarsUnavailableError."""
        java()
        if self.directory.exists():
            return
        maven = shutil.which("mvn")
        if maven is None:
            raise JarsUnavailableError(f"{self.name} is fetched by Maven: install it (Debian: apt-get install maven)")
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        tell(f"fetching {self.name} from Maven Central into {self.directory}")
        # Somebody else may fetch them at the same time: whoever is first to be done has it.
        with tempfile.TemporaryDirectory(dir=self.directory.parent, prefix=f"{self.name}-") as directory:
            self._run(maven, Path(directory) / "jars", tell)
            try:
                (Path(directory) / "jars").rename(self.directory)
            except OSError:
                if not self.directory.exists():
                    raise
        tell(f"fetched {self.name}: {len(list(self.directory.glob('*.jar')))} jars")

    def _run(self, maven: str, directory: Path, tell: Callable[[str], object]) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={directory}", *self.settings]
        fetched, said = 0, []
        with subprocess.Popen(  # noqa: S603 - what `which` found, and arguments of ours
            [maven, "-B", "-f", self.pom, *goal], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            alarm = threading.Timer(FETCH_SECONDS_MAX, process.kill)
            alarm.start()
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line.strip())
                if "Downloaded from" in line:
                    fetched += 1
                    if fetched % _TOLD_EVERY == 0:
                        tell(f"fetching {self.name}: {fetched} files so far")
            alarm.cancel()
        if process.returncode:
            errors = [line for line in said if "ERROR" in line] or said
            raise JarsUnavailableError(f"Maven could not fetch {self.name}: {' '.join(errors)[:500]}")


def print_progress(text: str) -> None:
    """Tells a person who waits, on the standard error output."""
    print(f"==> {text}", file=sys.stderr, flush=True)  # noqa: T201 - it talks to a person


def java() -> str:
    """The program; raises JarsUnavailableError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise JarsUnavailableError(
            "there is no Java: install 17 or newer (Debian: apt-get install default-jre-headless)"
        )
    return found

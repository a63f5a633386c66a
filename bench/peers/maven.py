"""Servers that are jars of Maven Central: a directory of them is all that a JVM needs."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Jars:
    """What a POM depends on, kept in the user's cache once it has been fetched."""

    name: str
    pom: Path
    settings: tuple[str, ...] = ()
    """Of Maven, for this POM."""

    @property
    def directory(self) -> Path:
        """Where they are kept."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "gapless-bench" / self.name

    @property
    def class_path(self) -> str:
        """All of them, for java's `-cp`."""
        return f"{self.directory}/*"

    def fetch(self) -> str:
        """Fetches them unless they are there; what went wrong, or nothing."""
        complete = self.directory / "complete"
        if complete.exists():
            return ""
        maven = shutil.which("mvn")
        if not maven or not shutil.which("java"):
            return "there is no Java or no Maven (Debian: apt-get install default-jre-headless maven)"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={self.directory}", *self.settings]
        done = subprocess.run([maven, "-q", "-B", "-f", self.pom, *goal], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"Maven could not fetch it: {done.stdout.strip()[-300:]}"
        complete.touch()
        return ""

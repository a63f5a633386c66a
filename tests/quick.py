"""What a hand wants to know within three minutes: `tox run -e quick`, or with `-- COMMIT` what has changed since then.

1. The unit tests of what has changed since a commit (by default the one before the last).
2. Twenty-one runs of the simulator: seeds that no other day has tried, under `local`, `hostile` and `knowledge`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "tests" / "unit"


def changed(commit: str) -> list[Path]:
    """The Python files that differ from a commit, new ones too."""
    commands = (["diff", "--name-only", "--diff-filter=d", commit], ["ls-files", "--others", "--exclude-standard"])
    outputs = (subprocess.check_output(["git", *command], cwd=ROOT, text=True) for command in commands)
    return [ROOT / line for output in outputs for line in output.splitlines() if line.endswith(".py")]


def tests_of(path: Path) -> set[Path]:
    """The unit tests of a file: itself, those named after its module, or else all of its package."""
    if UNIT in path.parents:
        return {path} if path.name.startswith("test_") else set(path.parent.glob("test_*.py"))
    package = next((parent for parent in path.parents if not (parent / "__init__.py").exists()), ROOT)
    folder = UNIT / path.relative_to(package).parent
    own = {*folder.glob(f"test_{path.stem}.py"), *folder.glob(f"test_{path.stem}_*.py")}
    return own or set(folder.glob("test_*.py"))


def main() -> int:
    """Runs both; returns the exit status of the first that fails."""
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD~1"
    tests = sorted({str(test) for path in changed(commit) for test in tests_of(path)})
    print(f"==> {len(tests)} files of unit tests of what has changed since {commit}", flush=True)
    if tests and (status := subprocess.call([sys.executable, "-m", "pytest", "-q", "--numprocesses=auto", *tests])):
        return status
    routers = ("local", "hostile", "knowledge")
    print(f"==> 7 seeds under {', '.join(routers)}", flush=True)
    options = [option for router in routers for option in ("--router", router)]
    return subprocess.call(["gapless", "simulate", *options, "--seeds", "7", "--first", str(first_seed())])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    from sim.seeds import first_seed

    sys.exit(main())

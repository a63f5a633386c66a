#!/usr/bin/env python3
"""Sets everything up in .venv beside this file, then does one job. Needs Python 3.10 or newer, no more.

    python3 dev.py demo [options of `gapless demo`]    real flights, killed brokers, and the proof
    python3 dev.py test [options of tox]               the tests that CI runs
    python3 dev.py chaos [options]                     kills, stops and broken connections, all at once: five minutes
    python3 dev.py power [cuts|flips] [options]        power cuts and turned bits, all of them: an hour and more
    python3 dev.py spark-kills [options]               a Spark pipeline, killed again and again: needs Java 17

Installing happens once, and again when pyproject.toml or the folder `fast` changes. The system's Python stays as it is.
Where there is a `cargo`, gapless-fast is built as well; without it gapless does the same, more slowly.
"""
# This file also runs under a Python that is too old, to say so: no syntax newer than 3.6 in it.

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
SCRIPTS = VENV / ("Scripts" if os.name == "nt" else "bin")
FAST = ROOT / "fast" / "Cargo.toml"
PYTHON_MIN = (3, 10)
ENVIRONMENT = {**os.environ, "PIP_USER": "0"}  # some systems and people have pip install for the user
JOBS = {
    "chaos": (["--editable", "."], ["python", "tests/chaos"], "gapless"),
    "demo": (["--editable", ".[demo]"], ["gapless", "demo"], "gapless and its demo (about 60 MB)"),
    "power": (["--editable", "."], ["python", "tests/power"], "gapless"),
    "spark-kills": (
        ["--editable", ".[demo,spark]"],
        ["python", "tests/spark_kills"],
        "gapless and Spark (half a gigabyte)",
    ),
    "test": (["tox>=4.24", "tox-uv>=1.25"], ["tox"], "tox, which then installs what each test environment needs"),
}
"""What each job installs, what it then runs, and what to call that."""


def main() -> None:
    """Does the job named by the first argument; its exit status becomes ours."""
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS:
        asked_for_help = len(sys.argv) > 1 and sys.argv[1] in ("-h", "--help")
        print(__doc__.strip())
        sys.exit(0 if asked_for_help else 2)
    if sys.version_info < PYTHON_MIN:
        run_under_newer_python()
    job, arguments = sys.argv[1], sys.argv[2:]
    requirements, command, title = JOBS[job]
    os.chdir(str(ROOT))
    if not environment_works():
        make_environment()
    install(job, requirements, title)
    if job == "test" and not arguments:
        leave_out_what_cannot_run()
    replace_process([str(SCRIPTS / command[0]), *command[1:], *arguments])


def run_under_newer_python() -> None:
    """Starts this script again under a newer Python of the PATH, or says that there is none."""
    for minor in range(19, PYTHON_MIN[1] - 1, -1):
        newer = shutil.which("python3.{}".format(minor))
        if newer and quietly([newer, "-c", ""]):
            replace_process([newer, *sys.argv])
    sys.exit(
        "gapless needs Python {}.{} or newer; this is {}.{} ({}), and the PATH has no newer one.".format(
            *PYTHON_MIN, *sys.version_info[:2], sys.executable
        )
    )


def environment_works() -> bool:
    """Whether .venv is there, complete and of a Python that is new enough."""
    if not (SCRIPTS / ("python.exe" if os.name == "nt" else "python")).exists():
        return False
    check = "import pip, sys; sys.exit(sys.version_info < {!r})".format(PYTHON_MIN)
    return quietly([venv_python(), "-c", check])


def make_environment() -> None:
    """Makes .venv; where ensurepip is missing (Debian without python3-venv), with the system's pip."""
    say("making .venv with Python {}.{}".format(*sys.version_info[:2]))
    whole = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    empty = [*whole, "--without-pip"]
    pip_from_outside = [sys.executable, "-m", "pip", "--python", str(VENV), "install", "--quiet", "pip"]
    if not quietly(whole) and not (quietly(empty) and quietly(pip_from_outside)):
        shutil.rmtree(str(VENV), ignore_errors=True)
        sys.exit(
            "{} can make no virtual environment: it lacks venv or ensurepip, and pip 22.3 or newer\n"
            "to do without them. On Debian and Ubuntu: sudo apt install python3-venv".format(sys.executable)
        )
    run([venv_python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "pip"])


def install(job: str, requirements: "list[str]", title: str) -> None:
    """Installs what a job needs, unless that was done before from the same pyproject.toml."""
    stamp = VENV / "installed-{}".format(job)
    fingerprint = fingerprint_of([ROOT / "pyproject.toml", FAST, *sorted(FAST.parent.glob("src/*.rs"))])
    if stamp.exists() and stamp.read_text(encoding="ascii") == fingerprint:
        return
    say("installing {} into .venv".format(title))
    run([venv_python(), "-m", "pip", "install", "--disable-pip-version-check", *requirements])
    if job != "test":  # its environments install for themselves
        build_fast()
    stamp.write_text(fingerprint, encoding="ascii")


def fingerprint_of(files: "list[Path]") -> str:
    """What tells whether files have changed; whether there is a cargo counts as well."""
    whole = hashlib.sha256(repr(shutil.which("cargo")).encode())
    for file in files:
        whole.update(file.read_bytes())
    return whole.hexdigest()


def build_fast() -> None:
    """Builds gapless-fast into .venv where there is a cargo, and says so where there is none."""
    if not shutil.which("cargo"):
        say("there is no cargo: gapless-fast is left out, and gapless is slower; https://rustup.rs has one")
        return
    say("building gapless-fast into .venv")
    run([venv_python(), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", str(FAST.parent)])


def venv_python() -> str:
    """The Python of .venv."""
    return str(SCRIPTS / "python")


def leave_out_what_cannot_run() -> None:
    """Without Java there is no Spark, without Maven no Kafka, without cargo no gapless-fast; but CI must have all."""
    if "CI" in os.environ:
        return
    left_out = []
    if "JAVA_HOME" not in os.environ and not shutil.which("java"):
        say("there is no Java: the tests in a real Spark are left out; install Java 17 for them")
        left_out.append(".*-spark.*")
    if not shutil.which("mvn") or ".*-spark.*" in left_out:
        say("the tests with a real Kafka need Java 17 and Maven, and are left out")
        left_out.append("kafka")
    if not shutil.which("cargo"):
        say("there is no cargo: the tests with gapless-fast are left out; https://rustup.rs has one")
        left_out.append("fast")
    if left_out:
        os.environ["TOX_SKIP_ENV"] = "|".join(left_out)


def say(message: str) -> None:
    """Tells the person who waits what is going on."""
    print("==> " + message, flush=True)


def quietly(command: "list[str]") -> bool:
    """Whether a step succeeded that may fail, because there is another way."""
    nowhere = subprocess.DEVNULL
    return subprocess.call(command, env=ENVIRONMENT, stdout=nowhere, stderr=nowhere) == 0


def run(command: "list[str]") -> None:
    """Runs one step of the set-up; a failed one ends it, with its own message standing last."""
    status = subprocess.call(command, env=ENVIRONMENT)
    if status != 0:
        sys.exit(status)


def replace_process(command: "list[str]") -> None:
    """Becomes the command, so that signals and the exit status are its own."""
    if os.name == "nt":  # where exec would let the shell go on before the command has ended
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()

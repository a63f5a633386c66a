#!/usr/bin/env python3
"""Sets everything up in .venv beside this file, then does one job. Needs Python 3.10 or newer, no more.

    python3 dev.py demo [options of `gapless demo`]    real flights, killed brokers, and the proof
    python3 dev.py test [options of tox]               the tests that CI runs
    python3 dev.py chaos [options]                     kills, stops and broken connections, all at once: five minutes
    python3 dev.py fuzz [options]                      mutated frames to every node, and a node that lies: ten minutes
    python3 dev.py power [cuts|flips] [options]        power cuts and turned bits, all of them: an hour and more
    python3 dev.py spark-kills [options]               a Spark pipeline, killed again and again: needs Java 17

Installing happens once, and again when pyproject.toml or the folder `fast` changes. The system's Python stays as it is.
Where there is a `cargo`, gapless-fast is built as well; without it gapless does the same, more slowly.
"""
# This file also runs under a Python that is too old, to say so: no syntax newer than 3.6 in it.

import ast
import configparser
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
SCRIPTS = VENV / ("Scripts" if os.name == "nt" else "bin")
FAST = ROOT / "fast" / "Cargo.toml"
PYTHON_MIN = (3, 10)
PYTHON_OF_TESTS = {"unit": range(10, 14), "kit": range(13, 9, -1)}
"""The environments with the unit tests: each runs on the first of these minor versions of Python 3 that is here."""
PYTEST_SKIP = re.compile(r"^SKIPPED \[(\d+)\] (?:\S+?:(?:\d+:)? )?(.*)$", re.MULTILINE)
PYTEST_DESELECTED = re.compile(r"\b(\d+) deselected\b")
PIP_SETTINGS = {"cert": "SSL_CERT_FILE", "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}
"""What pip may have been told about where packages are, and the variable that says the same to uv."""
COLOUR = re.compile("\x1b\\[[0-9;]*m")
ENVIRONMENT = {**os.environ, "PIP_USER": "0"}  # some systems and people have pip install for the user
JOBS = {
    "chaos": (["--editable", "."], ["python", "tests/chaos"], "gapless"),
    "demo": (["--editable", ".[demo]"], ["gapless", "demo"], "gapless and its demo (about 60 MB)"),
    "fuzz": (["--editable", "."], ["python", "tests/fuzz"], "gapless"),
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
    if job == "test":
        choose_pythons()
        tell_uv_what_pip_knows()
    whole = [str(SCRIPTS / command[0]), *command[1:], *arguments]
    if job == "test" and not arguments:
        sys.exit(run_all_tests(whole))
    replace_process(whole)


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


def choose_pythons() -> None:
    """Tells tox which Python the unit tests run on. An environment that has no choice here runs on tox's own Python."""
    own = int(subprocess.check_output([venv_python(), "-c", "import sys; print(sys.version_info[1])"]))
    chosen = [os.environ["TOX_OVERRIDE"]] if os.environ.get("TOX_OVERRIDE") else []
    for environment, minors in PYTHON_OF_TESTS.items():
        minor = next((minor for minor in minors if minor == own or python_is_here(minor)), own)
        if minor != own:
            chosen.append("testenv:{}.base_python=py3{}".format(environment, minor))
    if chosen:
        os.environ["TOX_OVERRIDE"] = ";".join(chosen)


def tell_uv_what_pip_knows() -> None:
    """Has uv, by which tox installs, take packages from where pip does: it reads none of pip's settings.

    Else a company's index, or its own certificate authority, would be there for `dev.py demo` and not for the tests.
    """
    os.environ.setdefault("UV_SYSTEM_CERTS", "1")  # pip trusts what the system trusts, too
    listed = subprocess.check_output([venv_python(), "-m", "pip", "config", "list"]).decode()
    settings = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    for key in sorted(settings, key=lambda key: key.startswith(":env:")):  # variables go before files
        variable = PIP_SETTINGS.get(key.rpartition(".")[2])
        if variable:
            settings[variable] = " ".join(ast.literal_eval(settings[key]).split())
    for variable in PIP_SETTINGS.values():
        if variable in settings:
            os.environ.setdefault(variable, settings[variable])


def python_is_here(minor: int) -> bool:
    """Whether the PATH has this Python 3, and it runs: that of a pyenv may be a name only."""
    python = shutil.which("python3.{}".format(minor))
    return python is not None and quietly([python, "-c", ""])


def leave_out_what_cannot_run() -> "dict[str, str]":
    """Without Java there is no Spark, without Maven no Kafka, without cargo no gapless-fast; but CI must have all.

    Returns the reason for each expression that names environments.
    """
    if "CI" in os.environ:
        return {}
    left_out = {}
    if "JAVA_HOME" not in os.environ and not shutil.which("java"):
        left_out[".*-spark.*"] = "there is no Java: the tests in a real Spark are left out; install Java 17 for them"
    if not shutil.which("mvn") or ".*-spark.*" in left_out:
        left_out["kafka"] = "the tests with a real Kafka need Java 17 and Maven, and are left out"
    if not shutil.which("cargo"):
        left_out["fast"] = "there is no cargo: the tests with gapless-fast are left out; https://rustup.rs has one"
    for reason in left_out.values():
        say(reason)
    if left_out:
        os.environ["TOX_SKIP_ENV"] = "|".join(left_out)
    return left_out


def run_all_tests(command: "list[str]") -> int:
    """Runs tox, and then names what it has left out. Returns the exit status: without unit tests it is never 0."""
    left_out = leave_out_what_cannot_run()
    results = VENV / "tox-results.json"
    if results.exists():
        results.unlink()
    status = wait_for([*command, "--result-json", str(results)])
    environments = json.loads(results.read_text(encoding="utf-8"))["testenvs"] if results.exists() else {}
    for line in what_did_not_run(environments, left_out):
        say(line)
    missing = [name for name in PYTHON_OF_TESTS if not ran(environments.get(name, {}))]
    if missing:
        say("this run fails, because unit tests did not run: {}".format(", ".join(missing)))
    return status or int(bool(missing))


def what_did_not_run(environments: "dict[str, dict[str, Any]]", left_out: "dict[str, str]") -> "list[str]":
    """Environments that were left out, and tests that were skipped, each with its reason."""
    lines = ["not run: {}".format(reason) for reason in left_out.values()]
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(str(ROOT / "tox.ini"), encoding="utf-8")
    for name in re.split(r"[,\s]+", settings["tox"]["env_list"].strip()):
        result = environments.get(name, {})
        if not ran(result) and not any(re.match(expression, name) for expression in left_out):
            lines.append("not run: {}: {}".format(name, reason_of(result)))
    for name, result in environments.items():
        skipped = {}  # type: dict[str, int]
        for command in result.get("test", ()):
            for count, reason in PYTEST_SKIP.findall(COLOUR.sub("", command["output"])):
                skipped[reason] = skipped.get(reason, 0) + int(count)
            for count in PYTEST_DESELECTED.findall(COLOUR.sub("", command["output"])):
                reason = "they take long: `tox -e release`; `kafka3` for those of Kafka"
                skipped[reason] = skipped.get(reason, 0) + int(count)
        lines.extend("not run: {} of {}: {}".format(tests(n), name, reason) for reason, n in skipped.items())
    return lines


def tests(count: int) -> str:
    """So many tests."""
    return "1 test" if count == 1 else "{} tests".format(count)


def ran(result: "dict[str, Any]") -> bool:
    """Whether tox has run the tests of an environment, by its own report."""
    return "test" in result and not result["result"]["skipped"]


def reason_of(result: "dict[str, Any]") -> str:
    """Why tox has run no tests in an environment."""
    if "result" not in result:
        return "TOX_SKIP_ENV leaves it out, or the run ended before"
    if not result["result"]["skipped"]:
        return "what it needs could not be installed; its own lines above say why"
    return "it needs Python {}.{}, which is not here".format(*result["python"]["version_info"])


def wait_for(command: "list[str]") -> int:
    """Runs a command to its end and returns its exit status. It gets what signals come, and cleans up by itself."""
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, lambda _number, _frame: None)  # the terminal sends it to both
    signal.signal(signal.SIGTERM, lambda _number, _frame: process.terminate())
    status = process.wait()
    return status if status >= 0 else 128 - status


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

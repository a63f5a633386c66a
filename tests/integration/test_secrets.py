"""Nothing that a broker or a client says, writes or shows has a secret in it, nor base64 or hexadecimal digits of one.

Every secret of a run is drawn at random, so that it can be looked for wherever the run has left anything, and in what
all processes of the machine show of themselves meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import logging
import pickle
import re
import secrets
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from typer.testing import CliRunner
from typing_extensions import Self

import gapless
from certificates import Directory
from gapless import BearerToken, Password, jms
from gapless.cli.app import app
from gapless.client.credentials import PASSWORD_FILE
from gapless.core.server.users import USERS, row_of
from gapless.spi import Create, VolumeIdentity
from gapless_spark.options import source_options
from gapless_spark.writing import sink_options
from gapless_storage.rocksdb import open_storage
from gapless_testing.ports import free_ports
from integration.broker_process import BrokerProcess, bounded, clean_environment

NOT_VALID = "the credentials are not valid here"
OURS = ("gapless", "scramp", "jwt")
"""The packages whose variables are looked at where an error has passed."""
LINE_MIN = 40
"""A line of a key in PEM, if it is so long: the last one may be anything."""


class Secrets:
    """The secrets of a run, and what is said in it."""

    def __init__(self) -> None:
        self._hidden: dict[str, bytes] = {}
        self._said: list[tuple[str, bytes]] = []

    def draw(self, what: str) -> str:
        """A new secret."""
        return self.hide(what, f"S3CRET-{what.replace(' ', '-')}-{secrets.token_hex(8)}")

    def hide(self, what: str, secret: str | bytes) -> str:
        """Something that must not be found."""
        self._hidden[what] = secret if isinstance(secret, bytes) else secret.encode()
        return self._hidden[what].decode("latin-1")

    def hide_key(self, what: str, file: Path) -> None:
        """A key in a file: every line of it."""
        lines = [line for line in file.read_text("ascii").splitlines() if "-----" not in line]
        for number, line in enumerate(lines):
            if len(line) >= LINE_MIN:
                self.hide(f"{what}, line {number}", line)

    def said(self, where: str, what: object) -> None:
        """Something that anybody may read."""
        self._said.append((where, what if isinstance(what, bytes) else str(what).encode("utf-8", "surrogatepass")))

    def unsaid(self, where: str) -> None:
        """What was said there is not looked at any more."""
        self._said = [(place, said) for place, said in self._said if place != where]

    def text(self, where: str) -> str:
        """What was said there."""
        return "\n".join(said.decode("utf-8", "replace") for place, said in self._said if place == where)

    def found(self) -> list[str]:
        """What was said and is secret; has to be empty."""
        needles = {form: what for what, secret in self._hidden.items() for form in forms(secret)}
        haystacks = [(where, said, said.lower()) for where, said in self._said]
        return [
            f"{where}: {what}, as {form!r}"
            for form, what in needles.items()
            for where, said, lower in haystacks
            if form in said or form in lower
        ]


def forms(secret: bytes) -> Iterator[bytes]:
    """A secret as it may be written; in base64, what stands before it decides between three ways."""
    yield secret
    yield secret.hex().encode()
    yield repr(secret)[2:-1].encode()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret)
        whole = encoded[-(-before * 4 // 3) : (before + len(secret)) * 4 // 3]
        yield whole
        yield whole.translate(bytes.maketrans(b"+/", b"-_"))


class Watch:
    """Reads, as `ps` does, what the processes of this machine show of themselves, from its beginning to its end."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.03):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    self.seen.add((process / "cmdline").read_bytes())


def shown_of(error: BaseException) -> Iterator[tuple[str, object]]:
    """All that can be made of an error, with the variables of the frames that are ours."""
    yield "error", str(error)
    yield "error", repr(error)
    chain: BaseException | None = error
    while chain is not None:
        yield "traceback", "".join(traceback.format_exception(chain))
        stack = traceback.StackSummary.extract(traceback.walk_tb(chain.__traceback__), capture_locals=True)
        for frame in stack:
            if any(f"/{package}" in frame.filename for package in OURS) and "/tests/" not in frame.filename:
                yield "variables", f"{frame.filename}:{frame.lineno} {frame.locals}"
        yield from pickled(chain)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


def pickled(thing: object) -> Iterator[tuple[str, object]]:
    """What others may get of it, if they can get it at all."""
    with contextlib.suppress(TypeError, pickle.PicklingError, AttributeError):
        yield "pickle", pickle.dumps(thing)


class Run:
    """A broker with secrets wherever there may be some, and whoever asks it something."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secrets = Secrets()
        self.draw, self.said = self.secrets.draw, self.secrets.said
        self.right, self.wrong, self.next = (self.draw(f"{which} password") for which in ("right", "wrong", "next"))
        self.key, self.other_key = self.draw("key for tokens"), self.draw("key of somebody else")
        (folder / "certificates").mkdir()
        self.tls = Directory(folder / "certificates")
        self.secrets.hide_key("the listener's key", self.tls.key)
        keys = {"keys": [{"kty": "oct", "k": base64.urlsafe_b64encode(self.key.encode()).decode().rstrip("=")}]}
        self.files = {name: self.file(name, secret) for name, secret in self.passwords().items()}
        jwks = self.file("jwks", json.dumps(keys))
        tls, plain = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.own_machine = f"gapless://{plain}"
        files = {"certificate": str(self.tls.certificate), "key": str(self.tls.key)}
        token = {"jwks": str(jwks), "issuer": "i", "audience": "a", "algorithms": ["HS256"]}
        self.broker = BrokerProcess(
            folder / "broker",
            environment={"PYTHONASYNCIODEBUG": "1", "KAFKA_PASSWORD": self.draw("of the environment")},
            node={"log_level": "debug"},
            storage={"path": str(folder / "broker" / "volume"), "reserve_bytes": 0},
            listen=[{"address": tls, "auth": ["scram", "token"], **files}, {"address": plain, "auth": ["anonymous"]}],
            auth=[{"plugin": "scram", "delays": False}, {"plugin": "token", **token}, {"plugin": "anonymous"}],
        )
        self.written_by_us = {path for path in folder.rglob("*") if path.is_file()}

    def passwords(self) -> dict[str, str]:
        """The names of files, and what is in them."""
        return {"right.txt": self.right, "wrong.txt": self.wrong, "two lines.txt": f"{self.right}\n{self.wrong}"}

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(f"{text}\n", "utf-8")
        return path

    def url(self, user: str = "", **parameters: object) -> str:
        """The address with TLS."""
        rest = self.broker.url.partition("://")[2]
        query = "&".join(f"{name}={value}" for name, value in {"ca": self.tls.ca, **parameters}.items())
        return f"gapless+tls://{user and f'{user}@'}{rest}?{query}"

    def token(self, key: str, **claims: object) -> str:
        """A token, which is a secret in itself."""
        claims = {"sub": "bot", "iss": "i", "aud": "a", "exp": time.time() + 600, "of": self.draw("claim")} | claims
        token = jwt.encode(claims, key, "HS256")
        return self.secrets.hide(f"token {token[-6:]}", token)

    def command(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        """A command, in this process; what it says."""
        result = CliRunner().invoke(app, arguments, input=stdin, env=environment)
        self.said("command", result.output)
        if result.exception is not None:
            self.shown(result.exception)
        return result.output

    async def process(self, *arguments: str, **environment: str) -> str:
        """A command, in a process of its own; what it says."""
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gapless.cli", "--debug", *arguments),
            env=clean_environment() | {"PYTHONASYNCIODEBUG": "1"} | environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await bounded(started.communicate())
        self.said("command", output)
        return output.decode()

    def shown(self, error: BaseException) -> None:
        for where, what in shown_of(error):
            self.said(where, what)

    async def refused(self, url: str, credentials: Any, match: str = NOT_VALID) -> None:
        """Somebody who is not let in, or not even asks."""
        with pytest.raises(gapless.GaplessError, match=match) as error:
            async with gapless.connect(url, credentials=credentials) as connection:
                await connection.pubends()
        self.shown(error.value)

    def read_volume(self) -> None:
        """What is secret of a stopped broker's volume, and whether more is in there than should be."""
        for path in self.broker.volume.rglob("*"):
            if path.is_file():
                self.said("volume", path.read_bytes())
        assert self.secrets.found() == []  # what follows is in the volume, and nowhere else
        self.secrets.unsaid("volume")
        volume = open_storage(
            path=str(self.broker.volume), identity=VolumeIdentity("", "broker"), options={}, create=Create.NO
        )
        try:
            for key, stored in volume.table(USERS).scan():
                verifier = row_of(key.decode(), stored).verifier
                self.secrets.hide(f"stored key of {key!r}", verifier.stored_key)
                self.secrets.hide(f"server key of {key!r}", verifier.server_key)
            self.secrets.hide("secret of the volume", volume.table("node").get(b"secret") or b"?")
        finally:
            volume.close()

    def read_files(self) -> None:
        """All that the run has written beside the volume: the log, configurations, and whatever else is there."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.written_by_us and self.broker.volume not in path.parents:
                self.said("log" if path.suffix == ".log" else f"file {path.name}", path.read_bytes())


@contextlib.contextmanager
def all_records() -> Iterator[io.StringIO]:
    """What this process logs, all of it."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    run = Run(tmp_path)
    async with run.broker:
        yield run


async def test_a_run_with_secrets_everywhere_tells_none(run: Run) -> None:
    asyncio.get_running_loop().set_debug(True)
    with Watch() as watch, all_records() as records:
        await asyncio.to_thread(manage, run, "--url", run.own_machine)
        await come_in(run)
        await are_refused(run)
        doctor, refused = await asyncio.gather(
            run.process("doctor", "--json", "--url", run.url("ada"), **{PASSWORD_FILE: str(run.files["right.txt"])}),
            run.process("pubends", "--url", run.url("ada", password_file=run.files["wrong.txt"])),
        )
        await run.broker.stop()
    run.said("records", records.getvalue())
    for command in watch.seen:
        run.said("ps", command)
    run.read_files()
    run.read_volume()

    assert run.secrets.found() == []
    assert json.loads(doctor)["broker"]["answers"], "and what was looked through is what is meant"
    assert "Traceback" in refused
    assert NOT_VALID in refused
    assert {"the password is wrong", "has expired", "DEBUG"} <= set(
        re.findall("the password is wrong|has expired|DEBUG", run.secrets.text("log"))
    )
    assert "SSL handshake took" in run.secrets.text("records"), "the loop tells all, too"
    assert "gapless.toml" in run.secrets.text("ps")
    assert "AuthenticationError" in run.secrets.text("variables") + run.secrets.text("traceback")


def manage(run: Run, *to_broker: str) -> None:
    """Users, as their administrator makes them."""
    run.command("user", "add", "ada", *to_broker, "--password-file", str(run.files["right.txt"]))
    run.command("user", "add", "bob", *to_broker, "--password-stdin", stdin=f"{run.wrong}\n")
    run.command("user", "password", "bob", *to_broker, "--password-stdin", stdin=f"{run.next}\n")
    run.command("user", "add", "zoe", *to_broker, "--password-stdin", stdin=f"{run.draw('unfit')}\x07\n")
    assert '"ada"' in run.command("user", "list", *to_broker, "--json")


async def come_in(run: Run) -> None:
    """With a password and with a token: work, and what the broker tells of itself."""
    for given in (Password("ada", run.right), BearerToken(lambda: run.token(run.key))):
        async with gapless.connect(run.url(), credentials=given) as connection, connection.session() as session:
            await session.publisher("flights").send(b"x")
            async with session.subscribe("flights", name="reader", start="earliest") as subscription:
                await bounded(anext(subscription))
            status = await connection.status()
            for thing in (connection, session, subscription, given):
                run.said("repr", repr(thing))
            for where, what in pickled(status):
                run.said(where, what)
            run.said("status", status)


async def are_refused(run: Run) -> None:
    """Whoever has the wrong ones, or the right ones no more."""
    await run.refused(run.url(), Password("ada", run.wrong))
    await run.refused(run.url(), Password("nobody", run.right))
    await run.refused(run.url("ada", password_file=run.files["wrong.txt"]), None)
    await run.refused(run.url("ada", password_file=run.files["two lines.txt"]), None, "no line of UTF-8")
    await run.refused(run.url(), BearerToken(run.token(run.other_key)))
    await run.refused(run.url(), BearerToken(run.token(run.key, exp=time.time() - 600)))
    await run.refused(run.url(), BearerToken(run.token(run.key, of=run.draw("long claim") * 200)), "too long")
    await run.refused(run.url(), BearerToken(run.token(run.key, sub="\x07")))
    async with gapless.connect(run.url(), credentials=Password("bob", run.next)) as bob:
        await asyncio.to_thread(
            run.command, "user", "password", "bob", "--url", run.own_machine, "--password-stdin", stdin=run.draw("last")
        )
        with pytest.raises(gapless.AuthenticationError) as error:
            for _ in range(1000):
                await bounded(bob.pubends())
                await asyncio.sleep(0.01)
    run.shown(error.value)


# ------------------------------------------------------------------- what is not even begun


def addresses(secret: str) -> Iterator[str]:
    """As somebody may write them who does not know how."""
    for scheme in ("gapless://", "gapless+tls://", "gapless+ws://", "gapless:", "http://", ""):
        yield f"{scheme}ann:{secret}@localhost:7400"
    for name in ("password", "token", "secret", "pasword", "password-file"):
        yield f"gapless+tls://ann@localhost:7400?{name}={secret}"


def settings(secret: str) -> Iterator[str]:
    """The same, of a configuration."""
    token = "[[auth]]\nplugin = 'token'\nissuer = 'i'\naudience = 'a'\nalgorithms = ['HS256']\n"
    yield f"[[auth]]\nplugin = 'scram'\npassword = '{secret}'\n"
    yield f"[[auth]]\nplugin = 'scram'\nusers = {{ann = '{secret}'}}\n"
    yield f"[[auth]]\nplugin = 'scram'\ndelays = '{secret}'\n"
    yield f"{token}jwks = {{keys = [{{kty = 'oct', k = '{secret}'}}]}}\n"
    yield f"{token}jwks = 'x'\nkey = '{secret}'\n"
    yield f"[[listen]]\naddress = '127.0.0.1:0'\ncertificate = 'x'\nkey = '''-----BEGIN PRIVATE KEY-----\n{secret}'''\n"
    yield f"[[listen]]\naddress = '127.0.0.1:0'\npassword = '{secret}'\n"
    yield f"[storage]\npassword = '{secret}'\n"
    yield f"[network]\nfile = 'network.toml'\nnode = 'a'\nsecret = '{secret}'\n"
    yield f"[network]\nsecret = {{is = '{secret}'}}\n"
    yield f"[node]\nsecret = '{secret}'\nname = 1\n"
    yield f"password = '{secret}\n"


ENVIRONMENT = ("PASSWORD", "TOKEN", "AUTH__PASSWORD", "AUTH__0__SECRET", "NETWORK__SECRET", "STORAGE__PASSWORD")


@pytest.fixture
def nothing() -> Secrets:
    return Secrets()


def refused_command(said: Secrets, *arguments: str, **environment: str) -> str:
    """A command that is not understood: what it says, and all that `--debug` can show."""
    result = CliRunner().invoke(app, ["--debug", *arguments], env=environment)
    assert isinstance(result.exception, gapless.ConfigurationError), (result.output, result.exception)
    said.said("command", result.output)
    said.said("error", str(result.exception))
    said.said("traceback", "".join(traceback.format_exception(result.exception)))
    return str(result.exception)


def test_an_address_that_is_not_taken_is_not_repeated(nothing: Secrets) -> None:
    secret = nothing.draw("in an address")
    for address in addresses(secret):
        refused_command(nothing, "pubends", GAPLESS_URL=address)
        with pytest.raises(jms.JMSError) as error:
            jms.ConnectionFactory(address).create_context()
        nothing.said("jms", "".join(traceback.format_exception(error.value)))
        for options in (lambda given: source_options(given, streaming=False), sink_options):
            with pytest.raises(gapless.ConfigurationError) as wrong:
                options({"brokers": address})
            nothing.said("spark", "".join(traceback.format_exception(wrong.value)))

    assert nothing.found() == []


def test_settings_that_are_not_taken_are_not_repeated(nothing: Secrets, tmp_path: Path) -> None:
    secret = nothing.draw("in a setting")
    file = tmp_path / "gapless.toml"
    for text in settings(secret):
        file.write_text(text, "utf-8")
        refused_command(nothing, "broker", "--config", str(file), "--create")
    for name in ENVIRONMENT:
        refused_command(nothing, "broker", "--data", str(tmp_path / "data"), "--create", **{f"GAPLESS_{name}": secret})

    assert nothing.found() == []


OBJECTS: Mapping[str, Callable[[str], object]] = {
    "password": lambda secret: Password("ann", secret),
    "token": BearerToken,
    "callable": lambda secret: BearerToken(lambda: secret),
    "jms": lambda secret: jms.ConnectionFactory("gapless://127.0.0.1:1", user="ann", password=secret),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_what_has_a_secret_neither_shows_it_nor_is_pickled_with_it(kind: str, nothing: Secrets) -> None:
    thing = OBJECTS[kind](nothing.draw("held"))
    nothing.said("repr", f"{thing!r} {thing!s} {thing}")
    for where, what in pickled(thing):
        nothing.said(where, what)

    assert nothing.found() == []


LEAKS: Mapping[str, Callable[[str], str]] = {
    "as it is": lambda secret: secret,
    "in bytes": lambda secret: repr(secret.encode()),
    "in hexadecimal digits": lambda secret: secret.encode().hex().upper(),
    "in base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "in base64, behind a name": lambda secret: base64.b64encode(f"ann:{secret}".encode()).decode(),
    "in a token": lambda secret: jwt.encode({"of": secret, "sub": "a"}, bytes(32), "HS256"),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_secret_that_is_told_is_found(name: str, nothing: Secrets) -> None:
    secret = nothing.draw("told")
    nothing.said("log", f"2026-11-30 INFO gapless: it is {LEAKS[name](secret)}, of course")
    nothing.said("log", "2026-11-30 INFO gapless: nothing is told here")

    assert len(nothing.found()) >= 1

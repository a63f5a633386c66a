"""A broker that cannot start says which setting or directory is wrong and what to do, and leaves all as it was.

A01, A02, S17, S18. Each start goes the whole way, with the
real plugins: through `Node.start`, and through a process of the command line for what that adds.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.core.wire.framing import encode_frame
from gapless.errors import (
    ConfigurationError,
    GaplessError,
    PluginError,
    VolumeCorruptError,
    VolumeForeignError,
    VolumeLockedError,
)
from gapless.node.config import load_config, make_config
from gapless.node.node import Node
from integration.broker_process import BrokerProcess, Ended, bounded, run_broker
from integration.nodes_in_process import running_node

pytestmark = pytest.mark.timeout(60)


def content(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def refused(config: str | dict[str, Any], directory: Path) -> GaplessError:
    """What `Node.start` raises for a configuration; a dict is one without a file."""
    path = directory / "gapless.toml"
    if isinstance(config, str):
        path.write_text(config, "utf-8")
    with pytest.raises(GaplessError) as raised:
        node = await Node.start(load_config(path, create=True) if isinstance(config, str) else make_config(config))
        await node.stop()
    return raised.value


def is_a_clear_end(ended: Ended, status: int, *fragments: str) -> bool:
    """Whether a process ended with a status and a sentence with all of these in it, and no traceback."""
    assert "Traceback" not in ended.error
    assert ended.out == ""
    sentence = ended.error.partition("gapless: ")[2]
    assert [fragment for fragment in fragments if fragment not in sentence] == [], ended.error
    return ended.status == status


# ----------------------------------------------------------------------------------------------- settings


WRONG_SETTINGS: dict[str, tuple[str, type[GaplessError], tuple[str, ...]]] = {
    "an unknown key": (
        "[node]\nnmae = 'x'",
        ConfigurationError,
        ("gapless.toml: ", "there is no key 'node.nmae' (did you mean 'name'?)"),
    ),
    "an unknown section": (
        "[sotrage]\npath = 'x'",
        ConfigurationError,
        ("gapless.toml: ", "there is no section [sotrage] (did you mean 'storage'?)"),
    ),
    "an unknown key of a role": ("[shb]\ncheckpoint = 1", ConfigurationError, ("gapless.toml: ", "shb", "checkpoint")),
    "an unknown key of a pubend": (
        "[[phb.pubends]]\nname = 'a'\nmax_retain = 2",
        ConfigurationError,
        ("gapless.toml: ", "phb.pubends.0.max_retain"),
    ),
    "an unknown option of the storage": (
        "[storage]\npath = 'v'\nbuffer = 1",
        ConfigurationError,
        ("gapless.toml: storage: ", "'buffer'", "write_buffer_bytes"),
    ),
    "an unknown option of the transport": (
        "[[listen]]\naddress = '127.0.0.1:0'\ncert = 'x'",
        ConfigurationError,
        ("gapless.toml: listen.0: ", "'cert'", "certificate"),
    ),
    "an unknown option of the authenticator": (
        "[auth]\nplugin = 'anonymous'\nfile = 'x'",
        ConfigurationError,
        ("gapless.toml: auth.0: ", "'file'"),
    ),
    "a value of a wrong type": ("[node]\nname = 7", ConfigurationError, ("gapless.toml: node.name: ", "not 7")),
    "a negative value": (
        "[node]\nmin_free_bytes = -1",
        ConfigurationError,
        ("gapless.toml: node.min_free_bytes: ", "greater than or equal to 0", "not -1"),
    ),
    "a value of a role": (
        "[shb]\nsilence_seconds = 0",
        ConfigurationError,
        ("gapless.toml: ", "shb", "silence_seconds"),
    ),
    "a pubend's topic": (
        "[[phb.pubends]]\nname = 'a'\ntopics = ['a..b']",
        ConfigurationError,
        ("gapless.toml: ", "phb.pubends.0.topics.0", "a..b"),
    ),
    "two pubends of one name": (
        "[[phb.pubends]]\nname = 'a'\n[[phb.pubends]]\nname = 'a'",
        ConfigurationError,
        ("gapless.toml: ", "phb", "a is configured twice"),
    ),
    "no path": ("[storage]\npath = ''", ConfigurationError, ("gapless.toml: storage: ", "needs a path")),
    "a storage that is not installed": (
        "[storage]\nplugin = 'paper'",
        PluginError,
        ("gapless.toml: storage: ", "no storage plugin is called 'paper'", "memory, rocksdb"),
    ),
    "a transport that is not installed": (
        "[[listen]]\ntransport = 'pigeon'",
        PluginError,
        ("gapless.toml: listen.0: ", "no transport plugin is called 'pigeon'", "memory, tcp"),
    ),
    "a routing that is not installed": (
        "[routing]\nplugin = 'rumour'",
        PluginError,
        ("gapless.toml: routing: ", "no routing plugin is called 'rumour'", "local"),
    ),
    "a role that is not installed": (
        "[node]\nroles = ['phb', 'butler']",
        PluginError,
        ("gapless.toml: node.roles: ", "no role plugin is called 'butler'", "phb, shb"),
    ),
    "an authenticator that is not installed": (
        "[auth]\nplugin = 'password'",
        PluginError,
        ("gapless.toml: auth.0: ", "no auth plugin is called 'password'", "anonymous"),
    ),
    "an address without a port": (
        "[[listen]]\naddress = '127.0.0.1'",
        ConfigurationError,
        ("gapless.toml: listen.0: ", "'127.0.0.1'"),
    ),
    "a port that there is not": (
        "[[listen]]\naddress = '127.0.0.1:70000'",
        ConfigurationError,
        ("gapless.toml: listen.0: ", "70000"),
    ),
    "a certificate that is not there": (
        "[[listen]]\naddress = '127.0.0.1:0'\ncertificate = 'nowhere.pem'",
        ConfigurationError,
        ("gapless.toml: listen.0: ", "nowhere.pem"),
    ),
    "no TOML": ("[node\n", ConfigurationError, ("gapless.toml: is not TOML",)),
}


async def test_a_wrong_setting_is_named_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """The file, the key, and what is wrong with it; no directory, no port."""
    for number, (name, (text, kind, fragments)) in enumerate(WRONG_SETTINGS.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        monkeypatch.chdir(directory)
        with subtests.test(name):
            error = await refused(text, directory)

            assert isinstance(error, kind)
            assert [fragment for fragment in fragments if fragment not in str(error)] == [], str(error)
            assert {path.name for path in directory.iterdir()} == {"gapless.toml"}


@pytest.mark.parametrize("name", ["an unknown key", "a value of a role", "a storage that is not installed", "no TOML"])
def test_a_process_ends_with_status_2_for_a_wrong_setting(tmp_path: Path, name: str) -> None:
    text, _, fragments = WRONG_SETTINGS[name]

    assert is_a_clear_end(run_broker(tmp_path, text, "--create"), 2, *fragments)


def test_a_variable_is_named_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "integration.broker_process.clean_environment", lambda: {"GAPLESS_NODE__MIN_FREE_BYTES": "much"}
    )

    ended = run_broker(tmp_path, "")

    assert is_a_clear_end(ended, 2, "GAPLESS_NODE__MIN_FREE_BYTES: node.min_free_bytes", "'much'")


# ----------------------------------------------------------------------------------------------- exposure


EXPOSED = ["0.0.0.0:0", "[::]:0", "192.0.2.1:7400", "example.org:7400"]
"""What other machines could reach, or might."""


async def test_an_address_beyond_loopback_needs_tls_and_authentication(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """A02: refused before anything is opened, with the way to do it all the same."""
    for address in EXPOSED:
        with subtests.test(address):
            error = await refused(
                {"storage": {"path": str(tmp_path / "v")}, "listen": [{"address": address}]}, tmp_path
            )

            assert isinstance(error, ConfigurationError)
            for fragment in (repr(address), "TLS", "authenticator", "insecure = true in [node]"):
                assert fragment in str(error)
            assert not (tmp_path / "v").exists()


async def test_one_exposed_address_among_safe_ones_is_enough(tmp_path: Path) -> None:
    listen = [{"address": "127.0.0.1:0"}, {"address": "0.0.0.0:0"}]

    error = await refused({"storage": {"plugin": "memory"}, "listen": listen}, tmp_path)

    assert "listen.1" in str(error)


async def test_loopback_needs_nothing_and_insecure_is_taken_at_its_word() -> None:
    for address, insecure in (("127.0.0.1:0", False), ("localhost:0", False), ("0.0.0.0:0", True)):
        async with running_node(listen=[{"address": address}], node={"insecure": insecure}) as node:  # type: ignore[arg-type]
            assert node.serving


def test_a_process_that_would_be_exposed_ends_with_status_2(tmp_path: Path) -> None:
    ended = run_broker(tmp_path, {"listen": [{"address": "0.0.0.0:0"}]})

    assert is_a_clear_end(
        ended, 2, "gapless.toml: listen.0: ", "'0.0.0.0:0' can be reached", "insecure = true in [node]"
    )
    assert set(content(tmp_path)) == {"gapless.toml"}


# -------------------------------------------------------------------------------------------------- ports


@pytest.fixture
def taken() -> Iterator[str]:
    """An address where somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield f"127.0.0.1:{other.getsockname()[1]}"


async def test_a_port_in_use_is_named_and_the_volume_let_go(tmp_path: Path, taken: str) -> None:
    """Also when it is the second of two: the first is closed again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = f"127.0.0.1:{probe.getsockname()[1]}"
    config = {"storage": {"path": str(tmp_path / "v")}, "listen": [{"address": free}, {"address": taken}]}

    error = await refused(config, tmp_path)

    assert isinstance(error, ConfigurationError)
    assert f"cannot listen on {taken}" in str(error)
    assert "in use" in str(error)
    assert not (tmp_path / "v").exists()
    async with running_node(tmp_path / "v", listen=[{"address": free}]) as node:  # type: ignore[arg-type]
        assert node.serving


def test_a_process_whose_port_is_in_use_ends_with_status_2(tmp_path: Path, taken: str) -> None:
    ended = run_broker(tmp_path, {"storage": {"plugin": "memory"}, "listen": [{"address": taken}]})

    assert is_a_clear_end(ended, 2, f"cannot listen on {taken}", "in use")


# ------------------------------------------------------------------------------------------- directories


async def make_volume(directory: Path, **node: str) -> None:
    """A volume with an event in it, not in use."""
    async with running_node(directory, node=dict(node)) as running:
        async with gapless.connect(running.url) as connection, connection.session() as session:
            await bounded(session.publisher("t", name="p").send(b"x"))


def config_for(directory: Path, **node: str) -> dict[str, Any]:
    """A broker on a directory."""
    return {"storage": {"path": str(directory)}, "listen": [{"address": "127.0.0.1:0"}], "node": node}


async def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    """S18: a node does not take over what another one has been told. Nothing in it is changed."""
    await make_volume(tmp_path / "v", name="anna")
    before = content(tmp_path / "v")

    error = await refused(config_for(tmp_path / "v", name="berta"), tmp_path)

    assert isinstance(error, VolumeForeignError)
    assert "belongs to node 'anna', not to 'berta'" in str(error)
    assert "give this node a directory of its own, or correct its node" in str(error)
    assert str(tmp_path / "v") in str(error)
    assert {name for name, data in content(tmp_path / "v").items() if data != before.get(name)} <= {"lock"}


async def test_the_directory_of_another_network_is_refused(tmp_path: Path) -> None:
    """S18. The same node name does not help; under its own network everything is there."""
    await make_volume(tmp_path / "v", network="trading")

    error = await refused(config_for(tmp_path / "v", network="testing"), tmp_path)

    assert isinstance(error, VolumeForeignError)
    assert "belongs to network 'trading', the configuration says 'testing'" in str(error)
    assert "give this node a volume of its own, or correct its network" in str(error)
    assert str(tmp_path / "v") in str(error)
    async with running_node(tmp_path / "v", node={"network": "trading"}) as node:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            assert (await session.publisher("t", name="p").recover()).sequence == 1


async def test_a_directory_that_is_no_volume_is_left_alone(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Somebody's documents, a file, and what a Kafka broker keeps."""
    documents, file, logs = tmp_path / "documents", tmp_path / "file", tmp_path / "logs"
    documents.mkdir()
    (documents / "thesis.txt").write_text("years of work")
    file.write_text("a file")
    logs.mkdir()
    (logs / "00000000.log").write_bytes(encode_frame(b"record"))
    (logs / "meta.properties").write_text("broker.id=0")
    before = content(tmp_path)
    for path, word in ((documents, "is not empty and is no volume"), (file, "is a file"), (logs, "is no volume")):
        with subtests.test(path.name):
            error = await refused(config_for(path), tmp_path)

            assert isinstance(error, VolumeForeignError)
            assert word in str(error)
            assert "directory of its own" in str(error)
            assert str(path) in str(error)
            assert content(tmp_path) == before


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Below a file there is no directory."""
    (tmp_path / "file").write_text("")

    error = await refused(config_for(tmp_path / "file" / "volume"), tmp_path)

    assert isinstance(error, (ConfigurationError, VolumeForeignError))
    assert str(tmp_path / "file" / "volume") in str(error)


@pytest.mark.parametrize("part", ["fence", "volume.json", "rocksdb"])
async def test_a_volume_without_one_of_its_parts_is_not_opened(tmp_path: Path, part: str) -> None:
    """S06, S18: whatever is missing, nothing new is made in its place."""
    async with running_node(tmp_path / "v"):
        pass
    (tmp_path / "v" / part).rename(tmp_path / "taken-away")
    before = content(tmp_path / "v")

    error = await refused(config_for(tmp_path / "v"), tmp_path)

    assert isinstance(error, (VolumeCorruptError, VolumeForeignError))
    assert part in str(error)
    assert {name for name in content(tmp_path / "v") if name not in before} <= {"lock"}
    (tmp_path / "taken-away").rename(tmp_path / "v" / part)
    async with running_node(tmp_path / "v") as node:
        assert node.serving


async def test_a_directory_in_use_is_refused_and_its_broker_goes_on(tmp_path: Path) -> None:
    """S17: by another process, and within this one; whoever has it does not notice."""
    async with BrokerProcess(tmp_path / "broker") as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            await bounded(publisher.send(b"1"))
            error = await refused(config_for(broker.volume), tmp_path)
            ended = await asyncio.to_thread(run_broker, tmp_path / "second", config_for(broker.volume))
            await bounded(publisher.send(b"2"))
            await broker.restart()
            logged = (await bounded(publisher.recover())).sequence

        assert isinstance(error, VolumeLockedError)
        assert f"{broker.volume} is in use by another process" in str(error)
        assert is_a_clear_end(ended, 1, f"{broker.volume} is in use by another process (its id: ")
        assert logged == 2


async def test_a_directory_that_this_process_uses_is_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path / "v") as node:
        error = await refused(config_for(tmp_path / "v"), tmp_path)

        assert isinstance(error, VolumeLockedError)
        assert "is in use by this very process" in str(error)
        assert node.serving


async def test_a_process_ends_with_status_1_when_its_directory_cannot_be_served(tmp_path: Path) -> None:
    """What is wrong is not the configuration but the world."""
    await make_volume(tmp_path / "v", name="anna")

    ended = await asyncio.to_thread(run_broker, tmp_path / "cli", config_for(tmp_path / "v", name="berta"))

    assert is_a_clear_end(ended, 1, "belongs to node 'anna', not to 'berta'")

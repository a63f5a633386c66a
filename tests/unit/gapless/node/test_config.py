"""Configuration: each bad one is refused with the key and where it was set (A01)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gapless import descriptors
from gapless.core.server import SessionLimits
from gapless.errors import ConfigurationError
from gapless.node.config import NodeConfig, load_config, make_config

FULL = """
[node]
name = "desk"
network = "trading"
roles = ["phb", "shb", "auditor"]
insecure = true
min_free_bytes = 1000

[storage]
plugin = "memory"
path = "elsewhere"
compression = "zstd"

[[listen]]
address = "[::1]:7401"

[[listen]]
transport = "memory"
address = "inside"
frame_limit = 2048

[auth]
plugin = "tokens"
file = "secrets"

[routing]
plugin = "local"

[limits]
heartbeat = 0.5
max_event_bytes = 2097152

[phb]
max_retain_seconds = 2

[auditor]
level = 3
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "gapless.toml"
    path.write_text(text, "utf-8")
    return path


def test_the_defaults_are_one_broker_on_loopback_with_its_data_here() -> None:
    config = load_config()

    assert (config.node.name, config.node.network, config.node.roles) == ("broker", "", ("phb", "shb"))
    assert (config.storage.plugin, config.storage.path) == ("rocksdb", "./gapless-data")
    assert [(listen.transport, listen.address) for listen in config.listen] == [("tcp", "127.0.0.1:7400")]
    assert (config.auth[0].plugin, config.routing.plugin) == ("anonymous", "local")
    assert config.node.insecure is False
    links = min(SessionLimits().links, descriptors.for_connections())
    assert config.limits.of_sessions == replace(SessionLimits(), links=links)


def test_a_file_says_everything(tmp_path: Path) -> None:
    path = write(tmp_path, FULL)

    config = load_config(path)

    assert config.source == str(path)
    assert config.node.name == "desk"
    assert config.storage.options == {"compression": "zstd"}
    assert [listen.options for listen in config.listen] == [{}, {"frame_limit": 2048}]
    assert config.auth[0].options == {"file": "secrets"}
    assert config.role("phb") == {"max_retain_seconds": 2}
    assert config.role("shb") == {}
    assert config.role("auditor") == {"level": 3}
    limits = config.limits.of_sessions
    assert (limits.heartbeat, limits.stall, limits.event_bytes) == (500_000_000, 1_500_000_000, 2 << 20)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[node]\nnmae = 'x'", "there is no key 'node.nmae' (did you mean 'name'?)"),
        ("[limits]\nheartbeats = 5", "there is no key 'limits.heartbeats' (did you mean 'heartbeat'?)"),
        ("[limits]\nq = 5", "there is no key 'limits.q'"),
        ("[sotrage]\nplugin = 'memory'", "there is no section [sotrage] (did you mean 'storage'?)"),
        ("[node]\nroles = ['phb']\n[shb]\n", "there is no section [shb]"),
        ("phb = 3", "[phb] must be a section, not 3"),
        ("[node]\nname = ''", "node.name: String should have at least 1 character, not ''"),
        ("[node]\nname = 'a b'", "node.name: String should match pattern"),
        ("[node]\nname = '..'", "node.name: String should match pattern"),
        ("[node]\nname = '.'", "node.name: String should match pattern"),
        ("[node]\nnetwork = 'a/b'", "node.network: the name holds a `/`"),
        ('[node]\nnetwork = "a\\u001bb"', "node.network: the name holds characters that cannot be printed"),
        ("[node]\nname = 7", "node.name: Input should be a valid string, not 7"),
        ("[node]\nmin_free_bytes = -1", "node.min_free_bytes: Input should be greater than or equal to 0, not -1"),
        ("[node]\nmin_free_bytes = 1.5", "node.min_free_bytes: Input should be a valid integer"),
        ("[node]\ninsecure = 'perhaps'", "node.insecure: Input should be a valid boolean"),
        ("[storage]\npath = 3", "storage.path: Input should be a valid string, not 3"),
        ("node = 3", "node: Input should be a valid dictionary or instance of NodeSection, not 3"),
        ("[listen]\naddress = 'x:1'", "listen: Input should be a valid tuple"),
        ("[[listen]]\naddress = 1", "listen.0.address: Input should be a valid string, not 1"),
        ("[limits]\nheartbeat = 0", "limits.heartbeat: Input should be greater than 0, not 0"),
        ("[limits]\nheartbeat = nan", "limits.heartbeat"),
        ("[limits]\nheartbeat = inf", "limits.heartbeat"),
        (
            "[limits]\nmax_event_bytes = 4194304",
            "limits: max_frame_bytes must be at least 1024 more than max_event_bytes",
        ),
        ("[node\n", "is not TOML"),
        ("[node]\nname = 'a'\nname = 'b'", "is not TOML"),
    ],
    ids=lambda value: value[:40],
)
def test_a_bad_file_names_itself_and_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path, text)

    with pytest.raises(ConfigurationError) as caught:
        load_config(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert complaint in str(caught.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "[node]\nname = 7\nfoo = 1\n[limits]\nheartbeat = -1")

    with pytest.raises(ConfigurationError) as caught:
        load_config(path)

    assert len(str(caught.value).splitlines()) == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.toml: cannot be read: No such file"):
        load_config(tmp_path / "nothing.toml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "gapless.toml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigurationError, match="is not TOML"):
        load_config(path)


def test_the_environment_stands_over_the_file(tmp_path: Path) -> None:
    environment = {
        "GAPLESS_NODE__NAME": "other",
        "GAPLESS_NODE__MIN_FREE_BYTES": "5",
        "GAPLESS_NODE__INSECURE": "false",
        "GAPLESS_NODE__ROLES": '["phb", "shb", "auditor"]',
        "GAPLESS_STORAGE__CACHE": "9",
        "GAPLESS_LISTEN__0__ADDRESS": "127.0.0.1:0",
        "GAPLESS_LISTEN__2__ADDRESS": "127.0.0.1:9",
        "GAPLESS_PHB__PUBENDS": '[{"name": "a"}]',
        "GAPLESS_URL": "gapless://somewhere",
        "GAPLESS_PASSWORD_FILE": "/run/secrets/ann",
        "HOME": "/root",
    }

    config = load_config(write(tmp_path, FULL), environment)

    assert (config.node.name, config.node.min_free_bytes, config.node.insecure) == ("other", 5, False)
    assert config.node.network == "trading"
    assert config.storage.options == {"compression": "zstd", "cache": "9"}
    assert [listen.address for listen in config.listen] == ["127.0.0.1:0", "inside", "127.0.0.1:9"]
    assert config.role("phb") == {"max_retain_seconds": 2, "pubends": [{"name": "a"}]}


def test_the_environment_does_without_a_file() -> None:
    config = load_config(None, {"GAPLESS_LISTEN__0__ADDRESS": "127.0.0.1:1", "GAPLESS_STORAGE__PLUGIN": "memory"})

    assert [listen.address for listen in config.listen] == ["127.0.0.1:1"]
    assert config.storage.plugin == "memory"


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("GAPLESS_NODE__NMAE", "x", "there is no key 'node.nmae'"),
        ("GAPLESS_NODE__NAME", "", "node.name: String should have at least 1 character"),
        ("GAPLESS_NODE__NAME__FIRST", "x", "node.name: Input should be a valid string"),
        ("GAPLESS_NODE__MIN_FREE_BYTES", "much", "node.min_free_bytes: Input should be a valid integer"),
        ("GAPLESS_NODE__ROLES", "[phb", "is not JSON"),
        ("GAPLESS_LISTEN__FIRST__ADDRESS", "x", "listen"),
        ("GAPLESS_SOTRAGE__PATH", "x", "there is no section [sotrage]"),
    ],
    ids=["key", "empty", "deep", "value", "json", "list", "section"],
)
def test_a_bad_variable_names_itself_or_its_key(variable: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_config(None, {variable: value})

    assert complaint in str(caught.value)


def test_a_variable_is_named_when_its_value_is_wrong(tmp_path: Path) -> None:
    path = write(tmp_path, "[limits]\nheartbeat = 0")

    with pytest.raises(ConfigurationError) as caught:
        load_config(path, {"GAPLESS_NODE__NAME": ""})

    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["GAPLESS_NODE__NAME", str(path)]


def test_a_listener_that_is_not_in_the_file_is_asked_for_by_the_next_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="GAPLESS_LISTEN__5__ADDRESS: '5' is not the number"):
        load_config(write(tmp_path, FULL), {"GAPLESS_LISTEN__5__ADDRESS": "127.0.0.1:1"})


def test_a_setting_cannot_lie_inside_another(tmp_path: Path) -> None:
    path = write(tmp_path, "[node]\nname = 'a'")

    with pytest.raises(ConfigurationError, match="GAPLESS_NODE__NAME__X: 'name' is not a section"):
        load_config(path, {"GAPLESS_NODE__NAME__X": "1"})


def test_settings_may_come_from_a_program() -> None:
    config = make_config({"listen": [], "storage": {"plugin": "memory"}})

    assert isinstance(config, NodeConfig)
    assert config.listen == ()
    with pytest.raises(ConfigurationError, match=r"configuration: there is no key 'node\.x'"):
        make_config({"node": {"x": 1}})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("GAPLESS_STORAGE_PATH", "GAPLESS_STORAGE__PATH"),
        ("GAPLESS_LISTEN_0_ADDRESS", "GAPLESS_LISTEN__0__ADDRESS"),
        ("GAPLESS_SHB_SUBSCRIPTION_LEASE_SECONDS", "GAPLESS_SHB__SUBSCRIPTION_LEASE_SECONDS"),
    ],
)
def test_a_variable_that_lacks_an_underscore_is_refused(variable: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{variable}: .*: {meant}"):
        load_config(None, {variable: "1"})


def test_what_others_put_into_the_environment_is_none_of_ours() -> None:
    """The command line's own, and what Kubernetes says of services called gapless-ANYTHING."""
    names = ("URL", "SERVICE_HOST", "PORT", "STORAGE_SERVICE_HOST", "STORAGE_SERVICE_PORT_TCP", "STORAGE_PORT_7400_TCP")
    more = ("PORT_7400_TCP_ADDR", "MY_EDGE_SERVICE_HOST", "MY_EDGE_PORT", "MY_EDGE_PORT_7400_TCP_PROTO")

    assert load_config(None, {f"GAPLESS_{name}": "1" for name in (*names, *more)}) == load_config()
    assert load_config(None, {"gapless_x": "1", "_GAPLESS_COMPLETE": "1", "MY_GAPLESS_X": "1"}) == load_config()


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("GAPLESS_STORAGEPATH", "there is no such setting (did you mean 'GAPLESS_STORAGE__PATH'?)"),
        ("GAPLESS_DATA", "a setting is GAPLESS_SECTION__KEY"),
        ("GAPLESS_NODE", "there is no such setting"),
        ("GAPLESS_URLS", "(did you mean 'GAPLESS_URL'?)"),
        ("GAPLESS_", "there is no such setting"),
    ],
)
def test_a_variable_that_nobody_knows_is_refused(variable: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_config(None, {variable: "1"})

    assert str(refused.value).startswith(f"{variable}: ")
    assert said in str(refused.value)

"""From a configuration to the parts (A01, A02)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapless import plugins
from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless.core.ports import Action, Authentication, Authorizer
from gapless.core.principals import PeerInfo, Principal
from gapless.core.resources import Resource
from gapless.errors import ConfigurationError, PluginError, VolumeForeignError
from gapless.node.assembly import (
    check_exposure,
    claim,
    dialable,
    doubts_about,
    is_everywhere,
    load_plugins,
    make_machine,
    open_authorizer,
    open_volume,
)
from gapless.node.config import NodeConfig, make_config
from gapless.node.gauges import SESSIONS
from gapless.plugins import hookimpl
from gapless.security.rules import Rules
from gapless.spi import Create
from links import FakeTransport
from nodes import LAST, TOLD, LogRole, StraightRouter
from volumes import FakeVolume

WALL = 1_700_000_000_000


class Guard:
    """An authenticator that is trusted, or not."""

    mechanism = ""
    needs_certificate = False

    def __init__(self, *, trusted: bool) -> None:
        self.trusted = trusted

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        return None


class TlsTransport(FakeTransport):
    """Encrypts."""

    encrypts = True


@pytest.mark.parametrize("address", ["0.0.0.0:7400", "192.168.1.4:7400", "broker.example:7400", ":7400", "[::]:1"])
def test_an_address_beyond_loopback_needs_tls_and_authentication(address: str) -> None:
    plain, encrypted = FakeTransport(), TlsTransport()
    nobody, guard = [Guard(trusted=False)], [Guard(trusted=True)]
    either = [Guard(trusted=True), Guard(trusted=False)]

    with pytest.raises(ConfigurationError, match=r"needs TLS .* and authenticators that check"):
        check_exposure(address, plain, nobody, insecure=False)
    with pytest.raises(ConfigurationError, match=r"needs TLS .*; to do without"):
        check_exposure(address, plain, guard, insecure=False)
    for one_knows_nobody in (nobody, either):
        with pytest.raises(ConfigurationError, match="needs authenticators that check something, all of them"):
            check_exposure(address, encrypted, one_knows_nobody, insecure=False)
    check_exposure(address, encrypted, guard, insecure=False)
    check_exposure(address, plain, nobody, insecure=True)


def test_an_authenticator_by_certificate_needs_a_listener_that_asks_for_them(installed: dict[Any, Any]) -> None:
    by_certificate = Guard(trusted=True)
    by_certificate.needs_certificate = True
    installed["auth", "certificate"] = always(by_certificate)
    sections: dict[str, Any] = {"auth": [{"plugin": "anonymous"}, {"plugin": "certificate"}], "listen": [{}]}

    with pytest.raises(ConfigurationError, match=r"listen\.0: the authenticator 'certificate' needs .* client_ca"):
        load_plugins(config(**sections))
    load_plugins(config(**sections | {"listen": [{"auth": ["anonymous"]}]}))


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"auth": [{"plugin": "scram"}, {"plugin": "scram"}]}, "two [[auth]] with the plugin 'scram'"),
        ({"listen": [{"auth": ["scram"]}]}, "there is no [[auth]] with the plugin 'scram'"),
        ({"listen": [{"auth": []}]}, "nobody could connect here"),
        ({"auth": []}, "auth: "),
    ],
)
def test_authenticators_that_do_not_go_together(sections: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        config(**sections)
    assert complaint in str(raised.value)


def test_loopback_needs_nothing() -> None:
    check_exposure("127.0.0.1:7400", FakeTransport(), [Guard(trusted=False)], insecure=False)


def refuse(what: str) -> Any:
    def hook(**_: Any) -> Any:
        raise ConfigurationError(what)

    return hook


def always(plugin: Any) -> Any:
    def hook(**_: Any) -> Any:
        return plugin

    return hook


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
    """The plugins that there are: kind and name to hook."""
    known: dict[tuple[str, str], Any] = {
        ("auth", "anonymous"): always(Guard(trusted=False)),
        ("transport", "tcp"): always(FakeTransport()),
        ("storage", "rocksdb"): always(FakeVolume()),
        ("routing", "local"): always(StraightRouter()),
        ("role", "phb"): always(LogRole()),
        ("role", "shb"): always(LogRole()),
    }

    def load(kind: str, name: str) -> Any:
        if (kind, name) not in known:
            raise PluginError(f"no {kind} plugin is called {name!r}")
        return known[kind, name]

    monkeypatch.setattr(plugins, "load", load)
    return known


def config(**sections: Any) -> NodeConfig:
    return make_config(sections, "gapless.toml")


def test_the_plugins_that_are_named_are_loaded(installed: Mapping[Any, Any]) -> None:
    loaded = load_plugins(config(node={"roles": ["phb"]}))

    assert list(loaded.open_auth) == ["anonymous"]
    assert [listen.address for listen, _ in loaded.listeners] == ["127.0.0.1:7400"]
    assert list(loaded.open_roles) == ["phb"]


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"auth": {"plugin": "ldap"}}, "gapless.toml: auth.0: no auth plugin is called 'ldap'"),
        ({"storage": {"plugin": "lmdb"}}, "gapless.toml: storage: no storage plugin is called 'lmdb'"),
        ({"routing": {"plugin": "x"}}, "gapless.toml: routing: no routing plugin is called 'x'"),
        ({"node": {"roles": ["bridge"]}}, "gapless.toml: node.roles: no role plugin is called 'bridge'"),
        ({"listen": [{}, {"transport": "udp"}]}, "gapless.toml: listen.1: no transport plugin is called 'udp'"),
        ({"listen": [{"address": "0.0.0.0:1"}]}, "gapless.toml: listen.0: address '0.0.0.0:1' can be reached"),
    ],
    ids=["auth", "storage", "routing", "role", "transport", "exposed"],
)
def test_what_is_wrong_names_the_file_and_the_key(
    installed: Mapping[Any, Any], sections: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_plugins(config(**sections))

    assert complaint in str(caught.value)


def test_a_plugin_that_refuses_its_options_names_the_file_and_the_section(installed: dict[Any, Any]) -> None:
    installed["auth", "anonymous"] = refuse("no option 'x'")
    with pytest.raises(ConfigurationError, match=r"^gapless\.toml: auth\.0: no option 'x'"):
        load_plugins(config())


@pytest.mark.parametrize(
    ("transport", "bound", "url"),
    [
        ("tcp", "127.0.0.1:4711", "gapless://127.0.0.1:4711"),
        ("tcp", "broker.example:4711", "gapless://broker.example:4711"),
        ("tcp", "0.0.0.0:4711", "gapless://127.0.0.1:4711"),
        ("tcp", "[::]:4711", "gapless://[::1]:4711"),
        ("tcp", "[0:0::0]:4711", "gapless://[::1]:4711"),
        ("tcp", "[fe80::1]:4711", "gapless://[fe80::1]:4711"),
        ("pigeon", "the-loft", "gapless+pigeon://the-loft"),
        ("pigeon", "/var/run/loft.sock", "gapless+pigeon:///var/run/loft.sock"),
        ("pigeon", "[]", "gapless+pigeon://[]"),
        ("pigeon", "0.0.0.0:80/loft", "gapless+pigeon://127.0.0.1:80/loft"),
        ("pigeon", "0.0.0.0", "gapless+pigeon://127.0.0.1"),
        ("pigeon", "0.0.0.0.example", "gapless+pigeon://0.0.0.0.example"),
    ],
)
def test_a_listener_is_dialled_by_the_name_of_its_transport(transport: str, bound: str, url: str) -> None:
    [listen] = config(listen=[{"transport": transport, "address": "127.0.0.1:0"}]).listen

    assert dialable(listen, FakeTransport(), bound) == url


def test_a_listener_that_is_not_open_is_dialled_as_it_is_configured() -> None:
    [listen] = config(listen=[{"address": "0.0.0.0:7500"}]).listen

    assert dialable(listen, FakeTransport()) == "gapless://127.0.0.1:7500"


def test_tls_is_said_of_tcp_alone_for_another_transport_knows_by_itself() -> None:
    tcp, pigeon = config(listen=[{}, {"transport": "pigeon", "address": "loft"}]).listen

    assert dialable(tcp, TlsTransport()) == "gapless+tls://127.0.0.1:7400"
    assert dialable(pigeon, TlsTransport()) == "gapless+pigeon://loft"


@pytest.mark.parametrize(("address", "everywhere"), [("0.0.0.0:1", True), ("[::]:1", True), ("10.0.0.0:1", False)])
def test_an_address_for_every_interface_is_known(address: str, everywhere: bool) -> None:
    assert is_everywhere(address) is everywhere


def shell(now: int) -> Any:
    """What a machine needs of a shell while it is made."""
    return SimpleNamespace(clock=lambda: (now, WALL), taps=())


def test_a_role_that_refuses_its_section_names_the_file_and_the_section(installed: dict[Any, Any]) -> None:
    installed["role", "shb"] = refuse("no key 'x'")
    volume = FakeVolume()
    with pytest.raises(ConfigurationError, match=r"^gapless\.toml: shb: no key 'x'"):
        make_machine(load_plugins(config()), volume, claim(volume, "", WALL), shell(1))


def test_a_role_is_told_who_it_is_and_the_router_what_it_saved(installed: dict[Any, Any]) -> None:
    contexts: list[Any] = []
    router = StraightRouter()
    volume = FakeVolume()
    volume.table("router").put(b"epoch", b"7")
    volume.write()

    def open_role(context: Any) -> LogRole:
        contexts.append(context)
        return LogRole()

    installed["role", "phb"] = open_role
    installed["routing", "local"] = always(router)
    settings = config(
        node={"name": "desk", "roles": ["phb"]}, phb={"max_retain_seconds": 2}, routing={"plugin": "local", "depth": 3}
    )
    identity = claim(volume, "net", WALL)

    machine = make_machine(load_plugins(settings), volume, identity, shell(5))

    (context,) = contexts
    assert (context.broker, context.network, context.storage_id) == ("desk", "net", identity.storage_id)
    assert (context.secret, context.now, context.wall) == (identity.secret, 5, WALL)
    assert context.config == {"max_retain_seconds": 2}
    assert context.reader.facts("log").decided == 0
    assert router.context is not None
    assert (router.context.broker, router.context.seed) == ("desk", identity.start)
    assert router.context.network == NetworkMap({"desk": NetworkNode(frozenset({"phb"}))})
    assert (router.context.saved, router.context.config) == ({"epoch": b"7"}, {"depth": 3})
    figures = list(machine.gauges())
    assert [one in figures for one in (SESSIONS.gauge(0), TOLD.gauge(0), LAST.gauge(0))] == [True] * 3


def test_a_volume_of_another_network_is_closed_again(installed: dict[Any, Any]) -> None:
    volume = FakeVolume()
    claim(volume, "theirs", WALL)
    asked: list[Any] = []

    def open_storage(**arguments: Any) -> FakeVolume:
        asked.append(arguments)
        return volume

    installed["storage", "rocksdb"] = open_storage
    loaded = load_plugins(config(node={"network": "ours", "name": "desk"}, storage={"path": "p", "cache": 3}))

    with pytest.raises(VolumeForeignError):
        open_volume(loaded, Create.NO, WALL)

    assert volume.closed
    assert asked[0]["path"] == "p"
    assert asked[0]["options"] == {"cache": 3}
    assert asked[0]["create"] is Create.NO
    assert asked[0]["identity"].node == "desk"


# --------------------------------------------------------------------------------- who may do what

RULE = {"who": "shop", "actions": "publish", "topics": "#"}


def test_without_rules_nobody_need_ask() -> None:
    assert not open_authorizer(config()).asks
    assert not open_authorizer(config(acl={"plugin": "allow-all"})).asks


def test_rules_stand_in_the_configuration_or_in_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "acl.toml").write_text("[[allow]]\nwho = 'shop'\nactions = 'publish'\ntopics = '#'\n", "utf-8")
    beside = make_config({"acl": {"file": "acl.toml"}}, str(tmp_path / "gapless.toml"))

    for made in (open_authorizer(config(allow=[RULE])), open_authorizer(beside)):
        assert isinstance(made, Rules)
        assert [rule.who for rule in made.rules] == [("shop",)]
    assert isinstance(made, Rules)
    assert made.rules[0].place == f"{tmp_path / 'acl.toml'}: [[allow]] 1 (line 1)"


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"acl": {"plugin": "rules"}}, "gapless.toml: there is no rule in it"),
        ({"acl": {"fiel": "x"}}, "gapless.toml: acl: the authorizer 'allow-all' has no option 'fiel'"),
        ({"acl": {"file": "x"}, "allow": [RULE]}, "gapless.toml: acl: file: there are rules in x, and [[allow]] here"),
        ({"acl": {"file": "nowhere.toml"}}, "nowhere.toml: cannot be read"),
        ({"acl": {"file": 7}}, "gapless.toml: acl: file: it is the path of a file of rules, not 7"),
        (
            {"acl": {"plugin": "allow-all"}, "deny": [RULE]},
            "gapless.toml: acl: plugin: 'allow-all' does not look at the [[deny]]",
        ),
        ({"acl": {"plugin": "theirs"}}, "gapless.toml: acl: no acl plugin is called 'theirs'"),
        ({"allow": RULE}, "gapless.toml: allow: write it as [[allow]]"),
        ({"allow": [{**RULE, "who": ""}]}, "gapless.toml: [[allow]] 1: who: an empty name"),
    ],
)
def test_rules_that_are_wrong_name_the_file_and_the_key(sections: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_authorizer(config(**sections))
    assert str(raised.value).startswith(complaint)


def test_another_plugin_decides_with_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        asks = True

        @hookimpl
        def open_acl(self, options: Mapping[str, Any]) -> Authorizer:
            assert options == {"file": "theirs.txt"}
            return self

        def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
            return "no"

    monkeypatch.setattr(plugins, "_added", {("acl", "theirs"): Theirs()})
    plugins.load.cache_clear()

    made = open_authorizer(config(acl={"plugin": "theirs", "file": "theirs.txt"}))
    assert made.refusal(Principal("shop"), Action.PUBLISH, "a") == "no"
    assert doubts_about(config(), made) == []
    plugins.load.cache_clear()


def test_rules_for_nobody_are_doubtful() -> None:
    sections = config(allow=[RULE, {**RULE, "who": "*", "topics": "a/b"}])

    told = doubts_about(sections, open_authorizer(sections))

    assert [each.partition(": ")[2][:11] for each in told] == ["[[allow]] 2", "[[allow]] 1"]
    assert "everybody is 'anonymous'" in told[1]

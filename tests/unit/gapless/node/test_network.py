"""A network's file: what it means, and that what makes no sense is refused in a sentence (A01, A02)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapless import plugins
from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless.errors import ConfigurationError
from gapless.node.assembly import NodeIdentity, load_plugins, secret_of, users_elsewhere
from gapless.node.config import NodeConfig, load_config, make_config
from gapless.node.network import load_network
from gapless.security.users import write_users
from gapless.spi import Create

NETWORK = """
bundles = [["origin", "middle"], ["edge", "middle"]]

[network]
name = "flights"
secret = "0123456789abcdef"
router = "knowledge"

[[node]]
name = "phb"
roles = ["phb"]
address = "127.0.0.1:7501"
cell = "origin"

[[node]]
name = "ib2"
address = "127.0.0.1:7503"
cell = "middle"

[[node]]
name = "ib1"
address = "127.0.0.1:7502"
cell = "middle"

[[node]]
name = "shb"
roles = ["shb"]
address = "127.0.0.1:7504"
cell = "edge"

    [node.options.storage]
    plugin = "memory"

    [node.options.shb]
    checkpoint_seconds = 0.5
"""


def write(directory: Path, text: str = NETWORK) -> Path:
    path = directory / "network.toml"
    path.write_text(text, "utf-8")
    return path


def changed(*changes: tuple[str, str], text: str = NETWORK) -> str:
    """The file with something else in the place of something."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def refusal(directory: Path, text: str) -> str:
    """Why a file is refused."""
    path = write(directory, text)
    with pytest.raises(ConfigurationError) as caught:
        load_network(path)
    said = str(caught.value)
    assert all(line.startswith(f"{path}: ") for line in said.splitlines())
    return said.replace(f"{path}: ", "")


def test_it_becomes_the_map_of_every_router(tmp_path: Path) -> None:
    network = load_network(write(tmp_path)).map()

    assert network.nodes == {
        "phb": NetworkNode(frozenset({"phb"}), "origin"),
        "ib1": NetworkNode(frozenset(), "middle"),
        "ib2": NetworkNode(frozenset(), "middle"),
        "shb": NetworkNode(frozenset({"shb"}), "edge"),
    }
    assert network.links == (("ib1", "ib2"), ("ib1", "phb"), ("ib1", "shb"), ("ib2", "phb"), ("ib2", "shb"))


def test_one_node_alone_is_a_network(tmp_path: Path) -> None:
    text = '[network]\nname = "n"\n[[node]]\nname = "a"\nroles = ["phb", "shb"]\naddress = "127.0.0.1:1"\ncell = "c"\n'

    assert load_network(write(tmp_path, text)).map().links == ()


BUNDLES = 'bundles = [["origin", "middle"], ["edge", "middle"]]'


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            [(BUNDLES, 'bundles = [["origin", "middle"], ["edge", "middle"], ["edge", "origin"]]')],
            "the cells must be a tree, and these make a cycle: edge – middle – origin – edge",
        ),
        (
            [(BUNDLES, 'bundles = [["origin", "middle"]]')],
            "no bundle leads from the cell 'origin' to 'edge': every cell must be connected",
        ),
        (
            [(BUNDLES, "bundles = []")],
            "no bundle leads from the cell 'origin' to 'middle', 'edge': every cell must be connected",
        ),
        (
            [('["edge", "middle"]', '["edge", "midle"]')],
            (
                "the bundle edge – midle: there is no cell 'midle' (did you mean 'middle'?)\n"
                "no bundle leads from the cell 'origin' to 'edge': every cell must be connected"
            ),
        ),
        (
            [(BUNDLES, 'bundles = [["origin", "middle"], ["edge", "middle"], ["middle", "edge"]]')],
            "the bundle middle – edge stands here twice",
        ),
        (
            [(BUNDLES, 'bundles = [["origin", "middle"], ["edge", "middle"], ["edge", "edge"]]')],
            "the bundle edge – edge leads nowhere: the nodes of a cell are neighbours anyway",
        ),
        ([('name = "ib2"', 'name = "ib1"')], "the node 'ib1' stands here 2 times"),
        ([("127.0.0.1:7503", "127.0.0.1:7502")], "the address '127.0.0.1:7502' stands here 2 times"),
        (
            [('7502"\ncell = "middle"', '7502"')],
            "the node 'ib1' stands in no cell: give it one (cell = \"…\")",
        ),
        (
            [('name = "ib1"', 'name = "ib1"\nroles = ["shb"]')],
            (
                "the cell 'middle' holds 'ib2', 'ib1', and 'ib1' has the role 'shb': a node with a role stands alone"
                " in its cell"
            ),
        ),
        (
            [('roles = ["shb"]', 'roles = ["butler"]'), ("[node.options.shb]", "[node.options.butler]")],
            "'shb' cannot have the role 'butler': no role plugin is called 'butler'; installed: phb, shb",
        ),
        ([('roles = ["shb"]', 'roles = ["shb", "shb"]')], "the node 'shb' has the role 'shb' twice"),
        ([("127.0.0.1:7503", "127.0.0.1")], "the node 'ib2': address '127.0.0.1' does not end in a port"),
        ([("127.0.0.1:7503", "127.0.0.1:0")], "the node 'ib2': address '127.0.0.1:0' needs a port"),
        (
            [("127.0.0.1:7503", "0.0.0.0:7503")],
            (
                "the node 'ib2': address '0.0.0.0:7503' is none that other nodes can dial; where it listens is said in"
                " its own configuration (network.listen)"
            ),
        ),
        (
            [("127.0.0.1:7503", "ib2.example:7503"), ('secret = "0123456789abcdef"', "insecure = true")],
            "links to 'ib2.example:7503' leave this machine, which needs a secret (network.secret_file)",
        ),
        (
            [("127.0.0.1:7503", "ib2.example:7503"), ('secret = "0123456789abcdef"', "")],
            (
                "links to 'ib2.example:7503' leave this machine, which needs TLS ([network.tls]; to do without, set"
                " insecure = true in [network]) and a secret (network.secret_file)"
            ),
        ),
        (
            [("127.0.0.1:7503", "ib2.example:7503")],
            (
                "links to 'ib2.example:7503' leave this machine, which needs TLS ([network.tls]; to do without, set"
                " insecure = true in [network])"
            ),
        ),
        (
            [("0123456789abcdef", "short")],
            "network.secret has 5 bytes, and needs 16 at least: `openssl rand -hex 32` makes one",
        ),
        (
            [('router = "knowledge"', 'secret_file = "secret"')],
            "network: secret and secret_file are both given; one of them is enough",
        ),
        (
            [('router = "knowledge"', 'routers = "knowledge"')],
            "there is no key 'network.routers' (did you mean 'router'?)",
        ),
        ([('cell = "edge"', 'cel = "edge"')], "there is no key 'node.3.cel' (did you mean 'cell'?)"),
        (
            [('cell = "edge"', 'cell = "edge"\nbundles = [["origin", "middle"]]')],
            "there is no key 'node.3.bundles': it stands at the top of the file, before [network]",
        ),
        ([('name = "flights"', "")], "network.name: Field required"),
        ([('name = "flights"', 'name = "a/b"')], "network.name: the name holds a `/`"),
        ([("[node.options.storage]", "[node.options.network]")], "the node 'shb': options.network is no section that"),
    ],
    ids=lambda value: f"{value[:50]}…{value[-50:]}" if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    tmp_path: Path, changes: list[tuple[str, str]], sentence: str
) -> None:
    assert refusal(tmp_path, changed(*changes)).startswith(sentence)


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    said = refusal(tmp_path, changed(("0123456789abcdef", "short"), ('name = "ib2"', 'name = "ib1"')))

    assert len(said.splitlines()) == 2


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    secret = "correct horse battery staple"
    network = load_network(write(tmp_path, changed(("0123456789abcdef", secret))))

    assert network.secret == secret.encode()
    assert secret not in repr(network)
    assert secret not in repr(network.file)
    for text in (
        changed(('secret = "0123456789abcdef"', f'secret = ["{secret}"]')),
        changed(('secret = "0123456789abcdef"', f'secret = "{secret}"\nsecret_file = "x"')),
        changed(("[network]", "[[network]]"), ("0123456789abcdef", secret)),
        changed(('secret = "0123456789abcdef"', f'secrt = "{secret}"')),
    ):
        assert secret not in refusal(tmp_path, text)


def test_the_secret_may_stand_in_a_file_beside_it(tmp_path: Path) -> None:
    text = changed(('secret = "0123456789abcdef"', 'secret_file = "secret.txt"'))
    assert "secret.txt cannot be read: No such file" in refusal(tmp_path, text)

    (tmp_path / "secret.txt").write_text("  fedcba9876543210\n")

    assert load_network(write(tmp_path, text)).secret == b"fedcba9876543210"


def test_links_may_leave_the_machine_with_tls_or_where_somebody_says_so(tmp_path: Path) -> None:
    beyond = ("127.0.0.1:7503", "ib2.example:7503")
    tls = 'router = "knowledge"\n[network.tls]\ncertificate = "certificates/{node}.pem"\nca = "ca.pem"\n'

    network = load_network(
        write(tmp_path, changed(beyond, ('secret = "0123456789abcdef"\n', ""), ('router = "knowledge"\n', tls)))
    )
    load_network(write(tmp_path, changed(beyond, ('router = "knowledge"', "insecure = true"))))

    assert network.transport_options("ib2") == {
        "certificate": tmp_path / "certificates/ib2.pem",
        "client_ca": tmp_path / "ca.pem",
        "tls": True,
        "ca": tmp_path / "ca.pem",
    }


@pytest.mark.parametrize(
    "change", [("7502", "7599"), ('"edge", "middle"', '"edge", "origin"'), ('"knowledge"', '"local"')]
)
def test_another_map_has_another_digest(tmp_path: Path, change: tuple[str, str]) -> None:
    same = load_network(write(tmp_path, changed(("0123456789abcdef", "fedcba9876543210"))))
    this, other = load_network(write(tmp_path)), load_network(write(tmp_path, changed(change)))

    assert this.digest == same.digest
    assert this.digest != other.digest


# A network of any other shape than a tree of cells.

RING = """
links = [["a", "b"], ["c", "b"], ["c", "a"]]

[network]
name = "ring"
router = "local"

[[node]]
name = "a"
roles = ["phb"]
address = "127.0.0.1:7501"
place = "3.0.1"

[[node]]
name = "b"
address = "127.0.0.1:7502"
place = "3.0.2"

[[node]]
name = "c"
roles = ["shb"]
address = "127.0.0.1:7503"

[routing]
turn_bytes = 4096
holders = { a = "x", b = ["y", "z"] }
since = 2026-11-29
"""


def ring(*changes: tuple[str, str]) -> str:
    """That network with something else in the place of something."""
    return changed(*changes, text=RING)


def test_its_links_and_places_stand_on_the_map(tmp_path: Path) -> None:
    network = load_network(write(tmp_path, RING))

    assert network.map() == NetworkMap(
        {
            "a": NetworkNode(frozenset({"phb"}), "3.0.1"),
            "b": NetworkNode(frozenset(), "3.0.2"),
            "c": NetworkNode(frozenset({"shb"}), ""),
        },
        (("a", "b"), ("a", "c"), ("b", "c")),
    )
    assert network.cells == {}


def test_links_may_stand_beside_bundles(tmp_path: Path) -> None:
    text = changed((BUNDLES, 'bundles = [["origin", "middle"]]\nlinks = [["shb", "ib1"]]'))

    network = load_network(write(tmp_path, text)).map()

    assert network.links == (("ib1", "ib2"), ("ib1", "phb"), ("ib1", "shb"), ("ib2", "phb"))


@pytest.mark.parametrize(
    "change",
    [
        ('["c", "b"], ["c", "a"]', '["c", "a"], ["b", "c"]'),
        ('links = [["a", "b"], ', 'links = [["b", "a"], '),
        (
            'turn_bytes = 4096\nholders = { a = "x", b = ["y", "z"] }',
            'holders = { b = ["y", "z"], a = "x" }\nturn_bytes = 4096',
        ),
    ],
    ids=["links", "ends of a link", "options"],
)
def test_the_order_of_links_and_options_makes_no_other_digest(tmp_path: Path, change: tuple[str, str]) -> None:
    this, same = load_network(write(tmp_path, RING)), load_network(write(tmp_path, ring(change)))

    assert repr(this.file) != repr(same.file)
    assert this.digest == same.digest


@pytest.mark.parametrize(
    "change",
    [
        (', ["c", "a"]]', "]"),
        ("3.0.2", "3.0.3"),
        ('place = "3.0.2"', ""),
        ('place = "3.0.2"', 'cell = "3.0.2"'),
        ("4096", "4097"),
        ("turn_bytes", "turns_bytes"),
        ('["y", "z"]', '["z", "y"]'),
        ("2026-11-29", "2026-11-30"),
    ],
    ids=" → ".join,
)
def test_other_links_places_and_options_make_another_digest(tmp_path: Path, change: tuple[str, str]) -> None:
    this, other = load_network(write(tmp_path, RING)), load_network(write(tmp_path, ring(change)))

    assert this.digest != other.digest


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ring(('["c", "b"]', '["c", "d"]')), "the link c – d: there is no node 'd'"),
        (
            changed((BUNDLES, f'{BUNDLES}\nlinks = [["ib", "phb"]]')),
            "the link ib – phb: there is no node 'ib' (did you mean 'ib",
        ),
        (ring(('["c", "b"]', '["c", "c"]')), "the link c – c leads nowhere"),
        (ring(('["c", "b"]', '["b", "a"]')), "the link b – a stands here twice"),
        (
            changed((BUNDLES, f'{BUNDLES}\nlinks = [["ib1", "phb"]]')),
            "the link ib1 – phb stands here twice: the bundle middle – origin has it",
        ),
        (
            changed((BUNDLES, f'{BUNDLES}\nlinks = [["ib1", "ib2"]]')),
            "the link ib1 – ib2 stands here twice: the nodes of the cell middle are neighbours anyway",
        ),
        (
            ring(('place = "3.0.2"', 'place = "3.0.2"\ncell = "middle"')),
            "the node 'b' has the cell 'middle' and the place '3.0.2': give it one of both",
        ),
        (
            ring(("turn_bytes = 4096", 'plugin = "local"')),
            "routing.plugin: which router the nodes have is said by network.router",
        ),
        (
            ring(('place = "3.0.2"', "options = { routing = { turn_bytes = 1 } }")),
            "the node 'b': options.routing.turn_bytes is 1, and 4096 in [routing], for all nodes: say it there alone",
        ),
        (
            ring(("[routing]", "links = 3\n[routing]")),
            "there is no key 'node.2.links': it stands at the top of the file",
        ),
        (
            ring(('"local"', '"knowledge"')),
            (
                "the cells must be a tree, and these make a cycle: 3.0.2 – 3.0.1 – c – 3.0.2\n"
                "routing: the router 'knowledge' has no option 'holders'"
            ),
        ),
        (
            ring(('"local"', '"pigeons"')),
            "network.router: no routing plugin is called 'pigeons'; installed: delta, knowledge, local",
        ),
    ],
    ids=lambda value: value[:40] if value[0] != "\n" else "",
)
def test_what_makes_no_sense_of_links_places_and_options_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    said = refusal(tmp_path, text)

    assert said.startswith(sentence)
    assert len(said.splitlines()) == len(sentence.splitlines())


def test_the_router_is_asked_about_the_map_and_the_common_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Picky:
        @plugins.hookimpl
        def open_routing(self) -> None: ...

        @plugins.hookimpl
        def check_network(self, network: NetworkMap, options: Mapping[str, Any]) -> list[str]:
            asked.append((network, options))
            return ["too round", "too small"]

    monkeypatch.setattr(plugins, "_added", {("routing", "picky"): Picky()})
    text = ring(('"local"', '"picky"'), ('["c", "b"]', '["c", "d"], ["a", "a"]'))

    said = refusal(tmp_path, text)

    plugins.load.cache_clear()
    assert said.splitlines() == [
        "the link c – d: there is no node 'd'",
        "the link a – a leads nowhere",
        "too round",
        "too small",
    ]
    [(network, options)] = asked
    assert network.links == (("a", "b"), ("a", "c")), "as far as the file makes sense"
    assert options["turn_bytes"] == 4096


# Which node of it one is.


def member(directory: Path, which: str, text: str = NETWORK, **sections: Any) -> NodeConfig:
    """The configuration of a node that names the file."""
    return make_config({"network": {"file": str(write(directory, text)), "node": which}, **sections})


def test_a_node_is_what_the_file_says_of_it(tmp_path: Path) -> None:
    config = member(tmp_path, "shb")

    assert (config.node.name, config.node.network, config.node.roles) == ("shb", "flights", ("shb",))
    assert config.routing.plugin == "knowledge"
    assert config.storage.plugin == "memory"
    assert config.role("shb") == {"checkpoint_seconds": 0.5}
    assert config.membership is not None
    assert config.membership.listen == "127.0.0.1:7504"


def test_its_own_configuration_goes_before_the_options_of_the_file(tmp_path: Path) -> None:
    config = member(tmp_path, "shb", shb={"silence_seconds": 2.0, "checkpoint_seconds": 1.0}, storage={"path": "here"})

    assert config.role("shb") == {"silence_seconds": 2.0, "checkpoint_seconds": 1.0}
    assert (config.storage.plugin, config.storage.path) == ("memory", "here")


COMMON = 'router = "knowledge"\n[routing]\nturn_bytes = 4096\n'


def test_the_router_gets_the_common_options_and_those_of_its_node(tmp_path: Path) -> None:
    text = changed(
        ('router = "knowledge"\n', COMMON),
        ("[node.options.storage]", "[node.options.routing]\ncache_bytes = 5\n[node.options.storage]"),
    )

    config = member(tmp_path, "shb", text, routing={"turn_bytes": 4096, "turn_subscriptions": 7})

    assert config.routing.plugin == "knowledge"
    assert config.routing.options == {"turn_bytes": 4096, "turn_subscriptions": 7, "cache_bytes": 5}


@pytest.mark.parametrize("own", [4097, ""])
def test_a_node_whose_own_routing_says_otherwise_is_refused(tmp_path: Path, own: object) -> None:
    path = tmp_path / "gapless.toml"
    write(tmp_path, changed(('router = "knowledge"\n', COMMON)))
    path.write_text(f'[network]\nfile = "network.toml"\nnode = "ib1"\n[routing]\nturn_bytes = {own!r}\n')

    with pytest.raises(ConfigurationError) as caught:
        load_config(path)

    assert str(caught.value) == (
        f"{path}: routing.turn_bytes is {own!r}, and 4096 in {tmp_path / 'network.toml'}: leave it to that file"
    )


def test_a_node_without_a_role_keeps_nothing_unless_told_where(tmp_path: Path) -> None:
    assert member(tmp_path, "ib1").storage.plugin == "memory"
    assert member(tmp_path, "ib1").node.roles == ()
    assert member(tmp_path, "ib1", storage={"path": "kept"}).storage.plugin == "rocksdb"
    assert member(tmp_path, "phb").storage.plugin == "rocksdb"


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"node": {"name": "shb2"}}, "configuration: node.name is 'shb2', and 'shb' in "),
        ({"node": {"roles": ["phb"]}}, "configuration: node.roles is ['phb'], and ['shb'] in "),
        ({"node": {"network": "trains"}}, "configuration: node.network is 'trains', and 'flights' in "),
        ({"routing": {"plugin": "delta"}}, "configuration: routing.plugin is 'delta', and 'knowledge' in "),
        ({"phb": {}}, "configuration: there is no section [phb]"),
    ],
)
def test_a_configuration_that_says_otherwise_is_refused(
    tmp_path: Path, sections: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        member(tmp_path, "shb", **sections)

    assert str(caught.value).startswith(sentence)


def test_a_node_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no node 'ib' \(did you mean 'ib."):
        member(tmp_path, "ib")


def test_the_file_is_found_from_where_it_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "nodes").mkdir()
    config = tmp_path / "nodes/gapless.toml"
    config.write_text('[network]\nfile = "../network.toml"\nnode = "ib1"\n')

    assert load_config(config).node.name == "ib1"
    assert load_config(config, {"GAPLESS_NETWORK__NODE": "ib2"}).node.name == "ib2"
    assert load_config(config).create is Create.NO
    config.write_text('[network]\nfil = "../network.toml"\nnode = "ib1"\n')
    with pytest.raises(ConfigurationError, match=r"network: there is no key 'fil' \(did you mean 'file'\?\)"):
        load_config(config)


def test_where_it_listens_may_be_another_address_but_not_a_less_safe_one(tmp_path: Path) -> None:
    path = str(write(tmp_path))
    for listen in ("127.0.0.1:0", "0.0.0.0:7504"):
        config = make_config({"network": {"file": path, "node": "shb", "listen": listen}})
        assert config.membership is not None
        assert config.membership.listen == listen

    with pytest.raises(ConfigurationError, match=r"network: .*links to '0\.0\.0\.0:7504' leave this machine"):
        load_plugins(config)


def test_a_node_in_no_network_needs_a_role() -> None:
    with pytest.raises(ConfigurationError, match=r"node\.roles: a node that is in no network needs a role"):
        load_plugins(make_config({"node": {"roles": []}, "storage": {"plugin": "memory"}}))


def test_certificates_that_are_not_there_are_named_before_anything_starts(tmp_path: Path) -> None:
    tls = 'router = "knowledge"\n[network.tls]\ncertificate = "{node}.pem"\nca = "ca.pem"\n'
    path = str(write(tmp_path, changed(('router = "knowledge"\n', tls))))

    with pytest.raises(ConfigurationError, match=r"network: .*cannot use .*ib1\.pem"):
        load_plugins(make_config({"network": {"file": path, "node": "ib1"}}))


def test_a_router_that_is_not_installed_is_named(tmp_path: Path) -> None:
    path = str(write(tmp_path, changed(('"knowledge"', '"carrier-pigeons"'))))

    with pytest.raises(ConfigurationError, match=r"network\.router: no routing plugin is called 'carrier-pigeons'"):
        load_plugins(make_config({"network": {"file": path, "node": "ib1"}}))


def test_a_network_whose_users_have_passwords_needs_a_file_of_them(tmp_path: Path) -> None:
    """A client comes to every node, and the users of a volume are known to one."""
    with pytest.raises(ConfigurationError, match=r"auth\.0: the users of a volume are known to its node alone"):
        load_plugins(member(tmp_path, "shb", auth={"plugin": "scram"}))

    write_users(tmp_path / "users", {})
    config = member(tmp_path, "shb", auth={"plugin": "scram", "users": str(tmp_path / "users")})
    assert load_plugins(config).open_auth
    assert f"gapless user --file {tmp_path / 'users'}" in users_elsewhere(config)
    with pytest.raises(ConfigurationError, match=r"auth\.0: .*nowhere: No such file"):
        load_plugins(member(tmp_path, "shb", auth={"plugin": "scram", "users": str(tmp_path / "nowhere")}))


def test_all_nodes_of_a_network_answer_alike_for_a_user_that_is_not_there(tmp_path: Path) -> None:
    """Their volumes have secrets of their own: by those, two nodes would tell that they know nobody of that name."""
    one, other = NodeIdentity("flights", "a", b"1" * 32, 1), NodeIdentity("flights", "b", b"2" * 32, 1)
    alone = load_plugins(make_config({"storage": {"plugin": "memory"}}))
    member_of = load_plugins(member(tmp_path, "shb", NETWORK))
    assert member_of.roaming is not None
    no_secret = replace(member_of, roaming=replace(member_of.roaming, secret=b""))

    assert secret_of(member_of, one) == secret_of(member_of, other) != b""
    assert secret_of(alone, one) == secret_of(no_secret, one) == b"1" * 32

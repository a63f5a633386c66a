"""A network's file: what it means, and that what makes no sense is refused in a sentence (A01, A02)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapless.core.network.facts import NetworkNode
from gapless.errors import ConfigurationError, PluginError
from gapless.node.assembly import load_plugins
from gapless.node.config import NodeConfig, load_config, make_config
from gapless.node.network import load_network
from gapless.spi import Create

NETWORK = """
bundles = [["origin", "middle"], ["edge", "middle"]]

[network]
name = "flights"
secret = "0123456789abcdef"
router = "local"

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


def changed(*changes: tuple[str, str]) -> str:
    """The file with something else in the place of something."""
    text = NETWORK
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
            [('router = "local"', 'secret_file = "secret"')],
            "network: secret and secret_file are both given; one of them is enough",
        ),
        ([('router = "local"', 'routers = "local"')], "there is no key 'network.routers' (did you mean 'router'?)"),
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
    tls = 'router = "local"\n[network.tls]\ncertificate = "certificates/{node}.pem"\nca = "ca.pem"\n'

    network = load_network(
        write(tmp_path, changed(beyond, ('secret = "0123456789abcdef"\n', ""), ('router = "local"\n', tls)))
    )
    load_network(write(tmp_path, changed(beyond, ('router = "local"', "insecure = true"))))

    assert network.transport_options("ib2") == {
        "certificate": tmp_path / "certificates/ib2.pem",
        "client_ca": tmp_path / "ca.pem",
        "tls": True,
        "ca": tmp_path / "ca.pem",
    }


@pytest.mark.parametrize("change", [("7502", "7599"), ('"edge", "middle"', '"edge", "origin"'), ('"local"', '"delta"')])
def test_another_map_has_another_digest(tmp_path: Path, change: tuple[str, str]) -> None:
    same = load_network(write(tmp_path, changed(("0123456789abcdef", "fedcba9876543210"))))
    this, other = load_network(write(tmp_path)), load_network(write(tmp_path, changed(change)))

    assert this.digest == same.digest
    assert this.digest != other.digest


# Which node of it one is.


def member(directory: Path, which: str, **sections: Any) -> NodeConfig:
    """The configuration of a node that names the file."""
    return make_config({"network": {"file": str(write(directory)), "node": which}, **sections})


def test_a_node_is_what_the_file_says_of_it(tmp_path: Path) -> None:
    config = member(tmp_path, "shb")

    assert (config.node.name, config.node.network, config.node.roles) == ("shb", "flights", ("shb",))
    assert config.routing.plugin == "local"
    assert config.storage.plugin == "memory"
    assert config.role("shb") == {"checkpoint_seconds": 0.5}
    assert config.membership is not None
    assert config.membership.listen == "127.0.0.1:7504"


def test_its_own_configuration_goes_before_the_options_of_the_file(tmp_path: Path) -> None:
    config = member(tmp_path, "shb", shb={"silence_seconds": 2.0, "checkpoint_seconds": 1.0}, storage={"path": "here"})

    assert config.role("shb") == {"silence_seconds": 2.0, "checkpoint_seconds": 1.0}
    assert (config.storage.plugin, config.storage.path) == ("memory", "here")


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
        ({"routing": {"plugin": "delta"}}, "configuration: routing.plugin is 'delta', and 'local' in "),
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
    tls = 'router = "local"\n[network.tls]\ncertificate = "{node}.pem"\nca = "ca.pem"\n'
    path = str(write(tmp_path, changed(('router = "local"\n', tls))))

    with pytest.raises(ConfigurationError, match=r"network: .*cannot use .*ib1\.pem"):
        load_plugins(make_config({"network": {"file": path, "node": "ib1"}}))


def test_a_router_that_is_not_installed_is_named(tmp_path: Path) -> None:
    path = str(write(tmp_path, changed(('"local"', '"carrier-pigeons"'))))

    with pytest.raises(PluginError, match="no routing plugin is called 'carrier-pigeons'"):
        load_plugins(make_config({"network": {"file": path, "node": "ib1"}}))

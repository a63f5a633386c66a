"""`gapless network`: what `--check` prints, what is refused, and what each node is given to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gapless.cli.app import app
from gapless.cli.network import Processes, is_tree_of_cells, last_lines, lines_for_clients, tree, write_network
from gapless.node.config import load_config
from gapless.node.network import load_network

NETWORK = """
bundles = [["middle", "origin"], ["middle", "west"], ["middle", "east"], ["east", "far"]]

[network]
name = "flights"
secret = "0123456789abcdef"
router = "knowledge"

[[node]]
name = "ib1"
address = "127.0.0.1:7502"
cell = "middle"

[[node]]
name = "ib2"
address = "127.0.0.1:7503"
cell = "middle"

[[node]]
name = "phb"
roles = ["phb"]
address = "127.0.0.1:7501"
cell = "origin"

[[node]]
name = "west"
roles = ["shb"]
address = "127.0.0.1:7504"
cell = "west"

[[node]]
name = "east"
roles = ["phb", "shb"]
address = "127.0.0.1:7505"
cell = "east"
options = { storage = { plugin = "memory" }, listen = [{ address = "127.0.0.1:7405" }] }

[[node]]
name = "far"
roles = ["shb"]
address = "127.0.0.1:7506"
cell = "far"
options = { storage = { compression = "none" } }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(NETWORK, "utf-8")
    return path


def test_check_draws_the_tree_of_cells_from_the_first_phb_on(file: Path) -> None:
    result = CliRunner().invoke(app, ["network", str(file), "--check"])

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "network flights: 6 nodes in 5 cells, router knowledge, a secret",
        "origin: phb (phb, 127.0.0.1:7501)",
        "└── middle: ib1 (between, 127.0.0.1:7502), ib2 (between, 127.0.0.1:7503)",
        "    ├── west: west (shb, 127.0.0.1:7504)",
        "    └── east: east (phb+shb, 127.0.0.1:7505)",
        "        └── far: far (shb, 127.0.0.1:7506)",
    ]


def test_check_says_all_of_it_as_json_but_the_secret(file: Path) -> None:
    result = CliRunner().invoke(app, ["network", str(file), "--check", "--json"])

    said = json.loads(result.stdout)
    assert (said["network"], said["router"], said["secret"], said["tls"]) == ("flights", "knowledge", True, False)
    assert said["nodes"][0] == {"name": "ib1", "roles": [], "cell": "middle", "place": "", "address": "127.0.0.1:7502"}
    assert len(said["bundles"]) == 4
    assert len(said["links"]) == 8
    assert "0123456789abcdef" not in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('["east", "far"]', '["east", "west"]', "make a cycle"),
        ('router = "knowledge"', 'router = "pigeons"', "no routing plugin is called 'pigeons'"),
        ("bundles", "bundels", "there is no key 'bundels' (did you mean 'bundles'?)"),
        ("bundles =", "bundles", "is not TOML"),
        ("bundles =", 'links = [["ib1", "nobody"]]\nbundles =', "the link ib1 – nobody: there is no node 'nobody'"),
        ("bundles =", 'links = [["ib1", "ib1"]]\nbundles =', "the link ib1 – ib1 leads nowhere"),
        ("bundles =", 'links = [["ib1", "ib2"]]\nbundles =', "the link ib1 – ib2 stands here twice"),
        ('cell = "far"', 'place = "far"', "the bundle east – far: there is no cell 'far'"),
        ('cell = "far"', 'place = "far"\ncell = "far"', "give it one of both"),
        ('cell = "far"\n', "", "the node 'far' stands in no cell: give it one"),
        (', ["east", "far"]', "", "no bundle leads from the cell 'middle' to 'far': every cell must be connected"),
        ('cell = "far"', 'cell = "west"', "a node with a role stands alone in its cell"),
        ("[network]", "[routing]\nturns = 3\n[network]", "routing: the router 'knowledge' has no option 'turns'"),
        ("[network]", '[routing]\nplugin = "knowledge"\n[network]', "routing.plugin: which router the nodes have"),
    ],
)
def test_what_is_wrong_with_the_file_ends_with_status_2(file: Path, old: str, new: str, sentence: str) -> None:
    file.write_text(NETWORK.replace(old, new), "utf-8")

    result = CliRunner().invoke(app, ["network", str(file), "--check"])

    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('["east", "far"]', '["east", "west"]', "make a cycle"),
        ("bundles =", 'links = [["ib1", "nobody"]]\nbundles =', "there is no node 'nobody'"),
        ("[network]", "[routing]\nturn_bytes = 7\n[network]", "routing.turn_bytes is 4096, and 7 in "),
    ],
)
def test_a_broker_does_not_start_in_a_network_that_makes_no_sense(
    file: Path, tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    file.write_text(NETWORK.replace(old, new), "utf-8")
    config = tmp_path / "gapless.toml"
    config.write_text('[network]\nfile = "network.toml"\nnode = "ib1"\n[routing]\nturn_bytes = 4096\n', "utf-8")

    result = CliRunner().invoke(app, ["broker", "--config", str(config)])

    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())


RING = """
links = [["a", "b"], ["c", "b"], ["c", "a"]]
[network]
name = "ring"
router = "local"
[[node]]
name = "b"
roles = ["phb", "shb"]
address = "127.0.0.1:7502"
[[node]]
name = "a"
address = "127.0.0.1:7501"
place = "3.0.1"
[[node]]
name = "c"
roles = ["shb"]
address = "127.0.0.1:7503"
cell = "north"
"""


def test_what_is_no_tree_of_cells_is_listed(file: Path) -> None:
    file.write_text(RING, "utf-8")

    result = CliRunner().invoke(app, ["network", str(file), "--check"])

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "network ring: 3 nodes and 3 links, router local, neither TLS nor a secret",
        "b (phb+shb, 127.0.0.1:7502)",
        "a (between, 127.0.0.1:7501) at 3.0.1",
        "c (shb, 127.0.0.1:7503) at north",
        "a – b",
        "a – c",
        "b – c",
    ]


def test_what_is_no_tree_of_cells_is_said_as_json(file: Path) -> None:
    file.write_text(RING, "utf-8")

    said = json.loads(CliRunner().invoke(app, ["network", str(file), "--check", "--json"]).stdout)

    assert said["nodes"][1] == {"name": "a", "roles": [], "cell": "", "place": "3.0.1", "address": "127.0.0.1:7501"}
    assert (said["links"], said["bundles"]) == ([["a", "b"], ["a", "c"], ["b", "c"]], [])


@pytest.mark.parametrize(
    "change",
    [
        ('["east", "far"]]', '["east", "far"], ["far", "west"]]'),
        (', ["east", "far"]]', "]"),
        (', ["east", "far"]]', ', ["east", "west"]]'),
        ('cell = "far"', 'place = "far"'),
        ("bundles =", 'links = [["west", "far"]]\nbundles ='),
    ],
    ids=["a cycle", "a cell apart", "both", "a node in no cell", "a link"],
)
def test_where_any_map_will_do_only_a_tree_of_cells_is_drawn(file: Path, change: tuple[str, str]) -> None:
    text = NETWORK.replace('"knowledge"', '"local"').replace(*change)
    file.write_text(text if "place" not in text else text.replace(', ["east", "far"]', ""), "utf-8")

    result = CliRunner().invoke(app, ["network", str(file), "--check"])

    assert result.exit_code == 0, result.stderr
    assert not is_tree_of_cells(load_network(file))
    assert "6 nodes and " in result.stdout
    assert "└" not in result.stdout


def test_a_file_that_is_not_there_ends_with_status_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["network", str(tmp_path / "nothing.toml")])

    assert result.exit_code == 2
    assert "nothing.toml: cannot be read: No such file" in result.stderr


def test_a_network_of_one_cell_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(
        '[network]\nname = "n"\n[[node]]\nname = "a"\nroles = ["phb"]\naddress = "127.0.0.1:1"\ncell = "c"\n'
    )

    assert list(tree(load_network(path))) == ["c: a (phb, 127.0.0.1:1)"]


def test_each_node_is_told_who_it_is_and_where_its_volume_goes(file: Path, tmp_path: Path) -> None:
    description = load_network(file)
    processes = Processes(description, file, tmp_path / "home", stay=False, as_json=False)
    configs = {}
    for node in description.file.node:
        directory = tmp_path / "home" / node.name
        directory.mkdir(parents=True)
        processes._write_configuration(directory, node)
        configs[node.name] = load_config(directory / "gapless.toml")

    assert [config.node.name for config in configs.values()] == ["ib1", "ib2", "phb", "west", "east", "far"]
    assert [configs[name].storage.plugin for name in ("ib1", "phb", "east", "far")] == [
        "memory",
        "rocksdb",
        "memory",
        "rocksdb",
    ]
    assert configs["phb"].storage.path == str(tmp_path / "home/phb/volume")
    assert configs["far"].storage.path == str(tmp_path / "home/far/volume")
    assert configs["far"].storage.options == {"compression": "none"}
    assert configs["phb"].listen[0].address == "127.0.0.1:0"
    assert configs["east"].listen[0].address == "127.0.0.1:7405"


def test_the_end_of_a_log_is_a_few_lines(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))

    assert last_lines(log) == [f"line {number}" for number in range(9995, 10_000)]
    log.write_text("")
    assert last_lines(log) == []


def test_it_writes_a_network_of_processes_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "four.toml"

    result = CliRunner().invoke(app, ["network", str(path), "--processes", "4", "--port", "9000", "--check"])

    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "network four: 5 nodes in 5 cells, router knowledge, a secret",
        "node1: node1 (phb+shb, 127.0.0.1:9100)",
        "└── middle: middle (between, 127.0.0.1:9104)",
        "    ├── node2: node2 (phb+shb, 127.0.0.1:9101)",
        "    ├── node3: node3 (phb+shb, 127.0.0.1:9102)",
        "    └── node4: node4 (phb+shb, 127.0.0.1:9103)",
    ]
    description = load_network(path)
    listening = [node.options.get("listen", [{}])[0].get("address") for node in description.file.node]
    assert listening == [*(f"127.0.0.1:{port}" for port in range(9000, 9004)), None]
    assert (tmp_path / "four.secret").stat().st_mode & 0o077 == 0


def test_two_processes_are_neighbours(tmp_path: Path) -> None:
    write_network(tmp_path / "two.toml", 2, 9000)

    assert load_network(tmp_path / "two.toml").file.bundles == (("node1", "node2"),)


@pytest.mark.parametrize("name", ["two.toml", "two.secret"])
def test_nothing_is_written_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")

    result = CliRunner().invoke(app, ["network", str(tmp_path / "two.toml"), "--processes", "2"])

    assert result.exit_code == 2
    assert f"{name} exists: without --processes" in " ".join(result.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("roles", "lines"),
    [
        ({"a": ["phb", "shb"]}, []),
        ({"a": ["phb", "shb"], "b": ["shb", "phb"]}, ["all nodes for clients: gapless://h:a,h:b"]),
        (
            {"a": ["phb"], "b": ["shb"], "c": ["phb", "shb"]},
            ["to subscribe, and to publish: gapless://h:b,h:c", "only to publish: gapless://h:a,h:c"],
        ),
        ({"a": ["phb"], "b": ["phb"]}, ["only to publish: gapless://h:a,h:b"]),
    ],
)
def test_clients_are_not_led_to_a_node_that_refuses_them(roles: dict[str, list[str]], lines: list[str]) -> None:
    """A client is served by the first node that answers, and one without an SHB refuses subscriptions."""
    assert lines_for_clients(roles, {name: f"gapless://h:{name}" for name in roles}) == lines

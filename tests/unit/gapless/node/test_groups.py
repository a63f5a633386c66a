"""Groups in a configuration: what a node makes of them, and that what makes no sense is refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapless.core.network.facts import OrderedGroup
from gapless.errors import ConfigurationError
from gapless.node.config import make_config
from gapless.node.network import load_network

NETWORK = """
bundles = [["west", "edge"], ["east", "edge"]]

[network]
name = "flights"
router = "local"

[[node]]
name = "left"
roles = ["phb"]
address = "127.0.0.1:7501"
cell = "west"

[[node]]
name = "right"
roles = ["phb"]
address = "127.0.0.1:7502"
cell = "east"

[[node]]
name = "shb"
roles = ["shb"]
address = "127.0.0.1:7503"
cell = "edge"
"""
GROUP = """
[[group]]
name = "book"
members = ["left/default", "right/default"]
silence_seconds = 0.5
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "network.toml"
    path.write_text(text, "utf-8")
    return path


def test_every_node_of_a_network_is_given_its_groups(tmp_path: Path) -> None:
    path = written(tmp_path, NETWORK + GROUP)

    for node in ("left", "right", "shb"):
        config = make_config({"network": {"file": str(path), "node": node}})
        assert [section.group for section in config.group] == [
            OrderedGroup("book", ("left/default", "right/default"), 0.5)
        ]


def test_another_list_of_members_is_another_network(tmp_path: Path) -> None:
    one = load_network(written(tmp_path, NETWORK + GROUP)).digest
    other = load_network(written(tmp_path, NETWORK + GROUP.replace(', "right/default"', ""))).digest

    assert one != other


def test_a_node_that_names_other_groups_than_its_network_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, NETWORK + GROUP)

    with pytest.raises(ConfigurationError, match="has the groups of the network: leave them to that file"):
        make_config({"network": {"file": str(path), "node": "shb"}, "group": [{"name": "b", "members": ["left/x"]}]})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GROUP + GROUP, "the group 'book' stands here twice"),
        (GROUP.replace("left/default", "right/default"), "stands twice in the group 'book'"),
        (GROUP + GROUP.replace("book", "other"), "the pubend 'left/default' stands in the groups 'book', 'other'"),
        (GROUP.replace("left/", "lost/"), "no node 'lost' that hosts pubends is known here; 'left', 'right' would be"),
        (GROUP.replace("left/", "shb/"), "no node 'shb' that hosts pubends"),
        (GROUP.replace("left/default", "left"), "group.0.members.0: "),
        (GROUP.replace("0.5", "0"), "group.0.silence_seconds: "),
        (GROUP.replace('"left/default", "right/default"', ""), "group.0.members: "),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_network(written(tmp_path, NETWORK + text))

    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ({"name": "g", "members": ["broker/a", "broker/a"]}, "stands twice in the group 'g'"),
        ({"name": "g", "members": ["other/a"]}, "no node 'other' that hosts pubends is known here; 'broker' would be"),
    ],
)
def test_a_node_by_itself_has_groups_of_its_own_pubends(group: dict[str, Any], sentence: str) -> None:
    assert make_config({"group": [{"name": "g", "members": ["broker/a", "broker/b"]}]}).group[0].name == "g"

    with pytest.raises(ConfigurationError) as caught:
        make_config({"group": [group]})

    assert sentence in str(caught.value)

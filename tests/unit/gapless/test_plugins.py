"""How plugins are found: with real distributions on the path, as third parties install them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapless.errors import ConfigurationError, PluginError
from gapless.plugins import KINDS, load, names
from gapless.spi import Create, VolumeIdentity


class Site:
    """A directory of installed distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(self, distribution: str, points: dict[str, dict[str, str]], **modules: str) -> None:
        """Installs a distribution with these entry points (group → name → value) and modules."""
        info = self.path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", "utf-8")
        lines = [
            line
            for group, named in points.items()
            for line in (f"[{group}]", *(f"{name} = {value}" for name, value in named.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
        for name, text in modules.items():
            (self.path / f"{name}.py").write_text(text, "utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(str(tmp_path))
    load.cache_clear()
    before = set(sys.modules)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert before <= set(sys.modules)
    yield Site(tmp_path)
    load.cache_clear()


GOOD = """
from gapless.plugins import hookimpl

@hookimpl
def open_auth(options):
    return ("made with", options)
"""


def test_a_plugin_of_another_distribution_is_found_by_kind_and_name(site: Site) -> None:
    site.install("acme-auth", {"gapless.auth": {"acme_ldap": "acme_ldap"}}, acme_ldap=GOOD)

    made = load("auth", "acme_ldap")(options={"x": 1}, context=None)

    assert made == ("made with", {"x": 1})
    assert "acme_ldap" in names("auth")


def test_an_implementation_may_take_fewer_arguments(site: Site) -> None:
    text = "from gapless.plugins import hookimpl\n\n@hookimpl\ndef open_storage(path):\n    return path\n"
    site.install("acme-storage", {"gapless.storage": {"acme_null": "acme_null"}}, acme_null=text)

    assert load("storage", "acme_null")(path="here", identity=None, options={}, create=None) == "here"


def test_one_name_may_be_used_in_two_kinds(site: Site) -> None:
    text = "from gapless.plugins import hookimpl\n\n@hookimpl\ndef open_storage():\n    return 'storage'\n"
    points = {"gapless.auth": {"acme": "acme_a"}, "gapless.storage": {"acme": "acme_s"}}
    site.install("acme", points, acme_a=GOOD, acme_s=text)

    assert load("storage", "acme")(path="", identity=None, options={}, create=None) == "storage"
    assert load("auth", "acme")(options=None, context=None) == ("made with", None)


def test_names_import_nothing(site: Site) -> None:
    site.install("acme", {"gapless.auth": {"acme_bad": "acme_bad"}}, acme_bad="raise RuntimeError('imported')")

    assert "acme_bad" in names("auth")


def test_only_the_plugin_that_was_asked_for_is_imported(site: Site) -> None:
    points = {"gapless.auth": {"acme_good": "acme_good", "acme_bad": "acme_bad"}}
    site.install("acme", points, acme_good=GOOD, acme_bad="raise RuntimeError('imported')")

    assert load("auth", "acme_good")(options=1, context=None) == ("made with", 1)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(PluginError, match="unknown kind of plugin 'database': there are storage, transport"):
        load("database", "x")


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_name_is_refused_with_those_there_are(kind: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(kind, "nonsense")

    assert str(caught.value).startswith(f"no {kind} plugin is called 'nonsense'; installed: ")
    assert all(name in str(caught.value) for name in names(kind))


def test_two_plugins_of_one_name_are_refused_with_both(site: Site) -> None:
    site.install("acme-one", {"gapless.auth": {"acme": "acme_one"}}, acme_one=GOOD)
    site.install("acme-two", {"gapless.auth": {"acme": "acme_two"}}, acme_two=GOOD)

    with pytest.raises(PluginError) as caught:
        load("auth", "acme")

    assert "2 auth plugins are called 'acme'" in str(caught.value)
    assert "acme_one of acme-one" in str(caught.value)
    assert "acme_two of acme-two" in str(caught.value)


def test_one_plugin_that_is_found_twice_is_one_plugin(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that is installed and also on the path."""
    site.install("acme", {"gapless.auth": {"acme_twice": "acme_twice"}}, acme_twice=GOOD)
    monkeypatch.setattr(sys, "path", [str(site.path), *sys.path])

    assert load("auth", "acme_twice")(options=1, context=None) == ("made with", 1)


def test_a_missing_extra_is_named(site: Site) -> None:
    site.install("acme", {"gapless.auth": {"acme_x": "acme_x"}}, acme_x="import acme_ldap_client.errors\n" + GOOD)

    with pytest.raises(PluginError) as caught:
        load("auth", "acme_x")

    assert "auth plugin 'acme_x' needs 'acme_ldap_client', which is not installed" in str(caught.value)
    assert "install gapless[acme_x]" in str(caught.value)
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_plugin_whose_module_is_gone(site: Site) -> None:
    site.install("acme", {"gapless.auth": {"acme_gone": "acme_gone"}})

    with pytest.raises(PluginError, match="needs 'acme_gone', which is not installed"):
        load("auth", "acme_gone")


def test_a_plugin_object_that_is_not_in_its_module(site: Site) -> None:
    site.install("acme", {"gapless.auth": {"acme_o": "acme_o:plugin"}}, acme_o=GOOD)

    with pytest.raises(PluginError, match="points to 'acme_o:plugin', which does not exist"):
        load("auth", "acme_o")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD.replace("open_auth", "open_aut"), "unknown hook 'open_aut'"),
        (GOOD.replace("(options)", "(options, secret)"), "secret"),
        (GOOD.replace("@hookimpl", ""), "does not implement open_auth()"),
        (GOOD.replace("open_auth(options)", "open_routing(options)"), "does not implement open_auth()"),
    ],
    ids=["misspelt hook", "misspelt argument", "no mark", "another kind's hook"],
)
def test_a_plugin_that_breaks_its_specification_is_refused(site: Site, text: str, complaint: str) -> None:
    site.install("acme", {"gapless.auth": {"acme_h": "acme_h"}}, acme_h=text)

    with pytest.raises(PluginError) as caught:
        load("auth", "acme_h")

    assert "auth plugin 'acme_h' (acme_h)" in str(caught.value)
    assert complaint in str(caught.value)


ROUTER = """
from gapless.plugins import hookimpl

@hookimpl
def open_routing():
    return "a router"
"""
CHECK = """
@hookimpl
def check_network(network):
    return [f"{network} is wrong"]
"""


def test_hook_check_network_may_be_left_out(site: Site) -> None:
    points = {"gapless.routing": {"acme_any": "acme_any", "acme_picky": "acme_picky"}}
    site.install("acme", points, acme_any=ROUTER, acme_picky=ROUTER + CHECK)

    found = [load("routing", name, "check_network")(network="it", options={}) for name in ("acme_any", "acme_picky")]

    assert found == [None, ["it is wrong"]]
    assert [load("routing", name)(options={}) for name in ("acme_any", "acme_picky")] == ["a router", "a router"]


def test_a_plugin_with_its_second_hook_alone_is_refused(site: Site) -> None:
    text = ROUTER.partition("@hookimpl")[0] + CHECK
    site.install("acme", {"gapless.routing": {"acme_half": "acme_half"}}, acme_half=text)

    with pytest.raises(PluginError, match=r"does not implement open_routing\(\)"):
        load("routing", "acme_half", "check_network")


def test_an_error_of_a_plugin_is_an_error_of_the_configuration() -> None:
    assert issubclass(PluginError, ConfigurationError)


@pytest.mark.parametrize("name", ["memory", "rocksdb"])
def test_hook_open_storage(name: str, tmp_path: Path) -> None:
    """A volume that knows whom it belongs to, made where there was none."""
    volume = load("storage", name)(
        path=str(tmp_path / "volume"), identity=VolumeIdentity("network", "node"), options={}, create=Create.YES
    )

    assert volume.created
    assert volume.identity.node == "node"
    volume.close()

"""Jars are fetched once, by a Maven that stands in for the real one; who lacks something is told what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless_testing.jars import Jars, JarsUnavailableError

MAVEN = """#!/bin/sh
for argument; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
echo run >> "$LOG"
i=0; while [ $i -lt 20 ]; do i=$((i + 1)); echo "Downloaded from central: http://x/$i.jar"; done
mkdir -p "$out"; touch "$out/a.jar" "$out/b.jar"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the PATH but the system's tools; it has a `java`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program(folder, "java", "#!/bin/sh\n")
    for tool in ("sh", "mkdir", "touch"):
        (folder / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOG", str(tmp_path / "runs"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


@pytest.fixture
def jars(tmp_path: Path) -> Jars:
    """What a POM asks for."""
    pom = tmp_path / "pom.xml"
    pom.write_text("<project/>", "utf-8")
    return Jars("server-1", pom)


def program(folder: Path, name: str, text: str) -> None:
    """Makes a program."""
    (folder / name).write_text(text, "utf-8")
    (folder / name).chmod(0o755)


def test_they_are_fetched_once_and_that_is_told(programs: Path, jars: Jars, tmp_path: Path) -> None:
    program(programs, "mvn", MAVEN)
    told: list[str] = []

    jars.fetch(told.append)
    jars.fetch(told.append)

    assert sorted(path.name for path in jars.directory.iterdir()) == ["a.jar", "b.jar"]
    assert jars.class_path == f"{jars.directory}/*"
    assert (tmp_path / "runs").read_text("utf-8") == "run\n"
    assert [text.split(" into ")[0] for text in told] == [
        "fetching server-1 from Maven Central",
        "fetching server-1: 10 files so far",
        "fetching server-1: 20 files so far",
        "fetched server-1: 2 jars",
    ]
    assert list(jars.directory.parent.iterdir()) == [jars.directory]


def test_another_pom_has_another_place(programs: Path, jars: Jars) -> None:
    before = jars.directory
    jars.pom.write_text("<project>2</project>", "utf-8")
    settings = Jars(jars.name, jars.pom, ("-Dversion=1",))

    assert len({before, jars.directory, settings.directory}) == 3


def test_a_maven_that_fails_leaves_nothing_behind(programs: Path, jars: Jars) -> None:
    program(programs, "mvn", MAVEN + "echo '[ERROR] no such artifact'; exit 1\n")

    with pytest.raises(JarsUnavailableError, match=r"Maven could not fetch server-1: \[ERROR\] no such artifact"):
        jars.fetch(lambda _: None)

    assert list(jars.directory.parent.iterdir()) == []


def test_somebody_else_may_have_fetched_them_in_the_meantime(programs: Path, jars: Jars) -> None:
    program(programs, "mvn", MAVEN + f"mkdir -p {jars.directory}; touch {jars.directory}/theirs.jar\n")

    jars.fetch(lambda _: None)

    assert [path.name for path in jars.directory.iterdir()] == ["theirs.jar"]


def test_without_maven(programs: Path, jars: Jars) -> None:
    with pytest.raises(JarsUnavailableError, match="apt-get install maven"):
        jars.fetch(lambda _: None)


def test_without_java(programs: Path, jars: Jars) -> None:
    (programs / "java").unlink()

    with pytest.raises(JarsUnavailableError, match="there is no Java: install 17"):
        jars.fetch(lambda _: None)


def test_java_may_be_somewhere_else(
    programs: Path, jars: Jars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "bin").mkdir(parents=True)
    (programs / "java").rename(tmp_path / "home" / "bin" / "java")
    program(programs, "mvn", MAVEN)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    jars.fetch(lambda _: None)

    assert jars.directory.exists()

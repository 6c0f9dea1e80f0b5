"""Jars are fetched once for a pom, and again when it changes; a missing or old Java is reported."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafscale.errors import StartupError
from spark_jobs import jars
from spark_jobs.jar_set import JarSet, MavenMissingError, check_java, java_version

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><dependencies>
<dependency><groupId>org.example</groupId><artifactId>one</artifactId><version>1.2</version></dependency>
<dependency><groupId>org.example</groupId><artifactId>two</artifactId><version>3</version></dependency>
</dependencies></project>"""

MAVEN = """#!/bin/sh
for argument in "$@"; do case $argument in -DoutputDirectory=*) folder=${argument#*=} ;; esac; done
printf x > "$folder/one-1.2.jar"
echo called >> "$(dirname "$0")/calls"
"""


def command(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def jar_set(tmp_path: Path) -> JarSet:
    (tmp_path / "pom.xml").write_text(POM)
    return JarSet(tmp_path / "pom.xml", tmp_path / "tools" / "jars")


def test_coordinates_are_the_poms(jar_set: JarSet) -> None:
    assert jar_set.coordinates() == ("org.example:one:1.2", "org.example:two:3")


def test_jars_are_fetched_once_for_a_pom(jar_set: JarSet, bin_folder: Path) -> None:
    command(bin_folder, "mvn", MAVEN)
    assert jar_set.paths() == ()
    assert jar_set.fetch() == "1 jar (0 MB) fetched with Maven"
    assert [path.name for path in jar_set.paths()] == ["one-1.2.jar"]
    assert jar_set.fetch() == "there already"
    assert (bin_folder / "calls").read_text() == "called\n"


def test_another_pom_needs_other_jars(jar_set: JarSet, bin_folder: Path) -> None:
    command(bin_folder, "mvn", MAVEN)
    jar_set.fetch()
    jar_set.pom.write_text(POM.replace("1.2", "1.3"))
    assert jar_set.paths() == ()
    assert "fetched" in jar_set.fetch()


def test_what_failed_leaves_the_folder_as_it_was(jar_set: JarSet, bin_folder: Path) -> None:
    command(bin_folder, "mvn", MAVEN)
    jar_set.fetch()
    jar_set.pom.write_text(POM.replace("1.2", "1.3"))
    command(bin_folder, "mvn", "#!/bin/sh\necho no such artifact; exit 1\n")
    with pytest.raises(StartupError, match=r"exit code 1\): no such artifact"):
        jar_set.fetch()
    assert [path.name for path in jar_set.folder.parent.iterdir()] == ["jars"]
    assert (jar_set.folder / "one-1.2.jar").exists()


def test_without_maven_spark_gets_the_coordinates(
    jar_set: JarSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jars, "ICEBERG", jar_set)
    with pytest.raises(MavenMissingError):
        jar_set.fetch()
    assert jars.jar_configuration() == {"spark.jars.packages": "org.example:one:1.2,org.example:two:3"}


def test_the_command_says_in_one_line_that_there_is_no_maven(
    jar_set: JarSet, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "ICEBERG", jar_set)
    monkeypatch.setenv("PATH", f"{bin_folder}:/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    command(bin_folder, "java", "#!/bin/sh\n>&2 echo 'openjdk version \"21.0.1\"'\n")
    result = CliRunner().invoke(jars.main, [])
    assert result.exit_code == 0
    assert result.output.count("\n") == 1
    assert "no mvn on the PATH" in result.output


def test_fetched_jars_are_handed_to_spark(
    jar_set: JarSet, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(bin_folder, "mvn", MAVEN)
    jar_set.fetch()
    monkeypatch.setattr(jars, "ICEBERG", jar_set)
    assert jars.jar_configuration() == {"spark.jars": str(jar_set.folder / "one-1.2.jar")}


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "1.8.0_292"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("bash: no such thing", None),
    ],
)
def test_javas_version_is_what_java_prints(told: str, version: int | None) -> None:
    assert java_version(told) == version


def test_a_missing_or_old_java_is_refused_with_the_remedy(tmp_path: Path, bin_folder: Path) -> None:
    with pytest.raises(StartupError, match=f"JAVA_HOME={tmp_path} has no bin/java: install it"):
        check_java({"JAVA_HOME": str(tmp_path)})
    with pytest.raises(StartupError, match="no java on the PATH"):
        check_java({"PATH": str(tmp_path)})
    command(bin_folder, "java", "#!/bin/sh\n>&2 echo 'openjdk version \"11.0.2\"'\n")
    with pytest.raises(StartupError, match="needs Java 17 or newer, and java is Java 11"):
        check_java({"PATH": str(bin_folder)})

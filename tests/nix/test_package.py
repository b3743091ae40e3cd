"""The package: what it is made of, what it brings, and what changes it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.nix


def hermes(package: Path, home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [package / "bin" / "hermes", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home), **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_package_runs_and_tells_its_version(nix, tmp_path: Path) -> None:
    done = hermes(nix.build("hermes-agent").path, tmp_path, "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "hermes-agent")


def test_declared_plugins_come_with_the_package(nix, tmp_path: Path) -> None:
    package = nix.build("systems.full.package").path
    (tmp_path / "config.yaml").write_text("plugins: {auto_enable: true}\n")
    listed = hermes(package, tmp_path, "plugins", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    found = {row["name"]: (row["source"], row["status"]) for row in json.loads(listed.stdout)}
    assert found["hello"] == ("declared", "enabled")
    assert found["weather"] == ("entrypoint", "enabled")


def test_the_package_knows_its_plugins_without_looking_and_says_when_what_it_knows_differs(nix, tmp_path: Path) -> None:
    package = nix.build("systems.full.package").path
    index = package / "share" / "hermes-agent" / "plugins.json"
    known = json.loads(index.read_text())
    declared = [each["manifest"]["key"] for each in known["found"] if each["manifest"]["source"] == "declared"]
    assert declared == ["hello"]
    assert [name for name, *_ in known["entry_points"]] == ["weather"]
    listed = hermes(package, tmp_path, "plugins", "list", HERMES_PLUGINS_DEBUG="1")
    assert f"bundled and declared plugins from the index {index}" in listed.stderr
    assert "scanned /nix/store" not in listed.stderr

    known["program"]["hermes"] = "0.1.0"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(known))
    listed = hermes(package, tmp_path, "plugins", "list", HERMES_PLUGIN_INDEX=str(other))
    assert f"warning: the plugin index {other} is not used: it was written for hermes 0.1.0" in listed.stderr
    assert "hello" in listed.stdout


def test_the_package_says_which_tools_its_plugins_bring(nix) -> None:
    package = nix.build("systems.full.package").path
    report = json.loads((package / "nix-support" / "plugins.json").read_text())
    assert {p["key"]: p["tools"] for p in report["plugins"]} == {"hello": ["hello"], "weather": ["weather"]}


def test_the_bundled_plugins_come_with_the_package_as_files(nix) -> None:
    source = REPOSITORY / "plugins"
    expected = {p.relative_to(source) for p in source.rglob("*") if p.suffix in (".py", ".yaml")}
    installed = nix.build("hermes-agent.library").path / nix.evaluate("hermes-agent.python.sitePackages")
    bundled = installed / "hermes_agent" / "_bundled"
    assert not bundled.is_symlink()
    found = [p for p in bundled.rglob("*") if p.suffix in (".py", ".yaml")]
    assert len(expected) > 20 and {p.relative_to(bundled) for p in found} == expected
    assert not [p for p in found if p.is_symlink()]


def test_a_bundled_provider_of_the_package_answers(nix, tmp_path: Path, scripted) -> None:
    package = nix.build("systems.full.package").path
    with scripted([{"match": {"userMessage": "Hello"}, "response": {"content": "Good day."}}]) as model:
        settings = {"provider": "custom", "base_url": model.base_url, "default": "scripted"}
        (tmp_path / "config.yaml").write_text(json.dumps({"model": settings}))
        said = hermes(package, tmp_path, "-z", "Hello", OPENAI_API_KEY=model.key)
    assert (said.returncode, said.stdout) == (0, "Good day.\n"), said.stderr


def test_every_dependency_of_the_project_is_in_the_package_and_imports(nix) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = {re.sub(r"[-_.]+", "-", re.split(r"[<>=!~\[; ]", d)[0]).lower() for d in project["dependencies"]}
    assert wanted <= set(json.loads(nix.build("systems.full.package.closureCheck").path.read_text()))

    environment = nix.build("hermes-agent.environment").path
    script = (
        "import sdnotify; from hermes_agent.policy.shell.parser import read_script;"
        "print(sdnotify.SystemdNotifier.__name__, len(read_script('cd / && rm -r x | cat').commands))"
    )
    done = subprocess.run([environment / "bin" / "python3", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "SystemdNotifier 3\n", done.stderr


NIXPKGS_NAMES = {"discord-py": "discordpy"}
"""Where nixpkgs calls a distribution otherwise."""


def test_every_extra_of_the_project_is_a_group_of_the_module_with_what_it_wants() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    file = (REPOSITORY / "nix" / "groups.nix").read_text()
    groups = {
        name: re.findall(r'"([^"]+)"', all_)
        for name, all_ in re.findall(r"^    ([a-z-]+) = \[(.*?)\];$", file, re.M | re.S)
    }
    lacking = {}
    for extra, requirements in extras.items():
        names = (re.sub(r"[-_.]+", "-", re.split(r"[<>=!~\[; ]", r)[0]).lower() for r in requirements)
        wanted = {NIXPKGS_NAMES.get(name, name) for name in names}
        # The journal's package comes with the library where the package set has it.
        if extra != "service" and (missing := wanted - {*groups.get(extra, ())} or extra not in groups):
            lacking[extra] = missing
    assert len(extras) > 5 and lacking == {}, "add it to nix/groups.nix"


@pytest.mark.skipif(not os.environ.get("HERMES_NIX_FULL"), reason="run by `make test-nix` (HERMES_NIX_FULL=1)")
def test_the_quick_part_of_the_suite_passes_against_the_installed_package(nix) -> None:
    assert nix.build("hermes-agent.tests.pytest").status == 0


def test_the_package_names_its_extras_and_what_it_relaxes(nix) -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(nix.evaluate("extras"))
    library = (REPOSITORY / "nix" / "library.nix").read_text()
    relaxed = re.findall(r'"([^"]+)"', re.search(r"pythonRelaxDeps = \[(.*?)\];", library, re.S)[1])
    assert relaxed and set(relaxed) <= set(re.findall(r"^    ([a-z0-9-]+)$", library, re.M))
    meta = nix.evaluate("hermes-agent.meta")
    assert {"description", "license", "longDescription", "mainProgram", "maintainers", "platforms"} <= set(meta)


def test_with_plugins_adds_to_what_is_there(nix) -> None:
    package = nix.build("withPluginsTwice").path
    report = json.loads((package / "nix-support" / "plugins.json").read_text())
    assert sorted(p["key"] for p in report["plugins"]) == ["hello", "weather"]


def test_the_closure_check_lists_every_distribution_once(nix) -> None:
    found = json.loads(nix.build("systems.full.package.closureCheck").path.read_text())
    assert found["leaf-dep"]["version"] == "1.0.0"
    assert {"hermes-agent", "openai", "pyyaml", "uvicorn", "weather"} <= set(found)


def test_every_module_of_the_installed_agent_imports(nix) -> None:
    assert nix.build("hermes-agent.gates.packageImports").path.read_text().endswith(" modules\n")


def test_nothing_of_the_hosts_own_python_shines_through(nix) -> None:
    environment = nix.build("hermes-agent.environment").path
    script = "import sys; print([p for p in sys.path if 'packages' in p])"
    done = subprocess.run([environment / "bin" / "python3", "-c", script], capture_output=True, text=True, timeout=60)
    site = environment / nix.evaluate("hermes-agent.python.sitePackages")
    assert done.stdout.strip() == f"['{site}']"


def test_tests_and_tools_do_not_change_the_package(nix, tree: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(tree, clone, symlinks=True)
    before = nix.in_tree(clone).derivation("hermes-agent")
    (clone / "docs").mkdir(exist_ok=True)
    (clone / "docs" / "new.py").write_text("")
    (clone / "bench" / "new.py").write_text("")
    (clone / "tests" / "new.py").write_text("")
    (clone / "hermes" / "hermes_agent" / "__pycache__").mkdir(exist_ok=True)
    (clone / "hermes" / "hermes_agent" / "__pycache__" / "x.pyc").write_bytes(b"")
    assert nix.in_tree(clone).derivation("hermes-agent") == before
    (clone / "hermes" / "hermes_agent" / "new.py").write_text("")
    assert nix.in_tree(clone).derivation("hermes-agent") != before


@pytest.mark.skipif(os.getuid() != 0, reason="Nix's sandbox needs root here")
@pytest.mark.parametrize("check", ["closureCheck", "pluginDir", "pluginCheck"])
def test_a_check_comes_to_the_same_in_nixs_own_sandbox(check: str, nix) -> None:
    built = nix.build(f"systems.full.package.{check}").path
    sandbox = ("--option", "sandbox", "true", "--option", "sandbox-paths", "/bin /usr /lib /lib64")
    again = nix.build(f"systems.full.package.{check}", "--check", *sandbox)
    assert again.path == built

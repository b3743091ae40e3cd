"""Rules that every source file keeps."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = sorted((ROOT / "hermes" / "hermes_agent").rglob("*.py"))
BUNDLED = sorted((ROOT / "plugins").rglob("*.py"))


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return None


def defined(tree: ast.Module) -> set[str]:
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }


FACES = ("contracts", "adapters", "testing")
"""Packages that others import from: each of their modules lists its public names."""


@pytest.mark.parametrize("path", OWN, ids=lambda p: str(p.relative_to(ROOT / "hermes")))
def test_a_module_says_what_it_is_for_and_a_face_lists_its_public_names(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "a module starts with a docstring"
    names = exported(tree)
    if path.name in ("__main__.py", "lazy_types.py"):  # the second has aliases, which a type checker else hides
        return
    if path.name == "__init__.py":
        if names is None:
            assert not defined(tree)
            return
    elif path.relative_to(ROOT / "hermes" / "hermes_agent").parts[0] not in FACES:
        assert names is None, "`__all__` stands where others import from"
        return
    assert names is not None, "a module that others import from has __all__"
    assert len(names) == len(set(names))
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    top = [*tree.body, *(n for branch in tree.body if isinstance(branch, ast.If) for n in branch.body)]
    imported = {a.asname or a.name for n in top if isinstance(n, ast.ImportFrom | ast.Import) for a in n.names}
    assert set(names) <= defined(tree) | bound | imported, "every exported name is there"
    assert defined(tree) <= set(names), "every public definition is exported"


LONGER: dict[str, int] = {}
"""Files that are still to be cut, with their lines: a number may fall, and no row is added."""


def test_no_file_of_ours_is_longer_than_a_reader_wants() -> None:
    lines = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in (*OWN, *BUNDLED)}
    assert {name: n for name, n in lines.items() if n > LONGER.get(name, 500)} == {}
    assert {name: n for name in LONGER if (n := lines[name]) <= 500} == {}, "take the row away"


FOR_PLUGINS = re.compile(
    r"hermes_agent\.(?:contracts|adapters|core\.errors|core\.messages|core\.tasks|core\.text|core\.tool_schemas)(?:\.|$)"
)
"""What of the package a bundled plugin may import."""


def test_a_bundled_or_example_plugin_imports_the_standard_library_its_sdk_and_the_contracts_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    sdks = {re.split(r"[<>=\[;]", name)[0].strip().replace("-", "_").removesuffix(".py") for name in declared}
    allowed = sys.stdlib_module_names | sdks | {name.partition("_")[0] for name in sdks if name.startswith("azure_")}
    for path in [*BUNDLED, *(ROOT / "examples" / "plugins").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [f"{node.module}.{a.name}" for a in node.names]
            else:
                continue
            for name in names:
                ok = name.split(".")[0] in allowed or FOR_PLUGINS.match(name)
                assert ok, f"{path.relative_to(ROOT)} imports {name}"


NAMES_OF_LOCAL_MODEL = re.compile(r"embedded model|xllamacpp|\bweights\b|model-providers/local", re.IGNORECASE)


def test_the_embedded_model_is_named_in_its_plugin_alone() -> None:
    base = ROOT / "hermes" / "hermes_agent"
    found = [
        str(path.relative_to(base))
        for package in ("agent", "app", "contracts", "host", "models", "plugins")
        for path in (base / package).rglob("*.py")
        if "setup" not in path.parts  # `hermes setup` offers it by name
        if NAMES_OF_LOCAL_MODEL.search(path.read_text())
    ]
    assert found == []


REGISTRY_HOSTS = re.compile("|".join(("py" + "pi.org", "pythonh" + "osted", "npm" + "js", "deb.deb" + "ian")))


GROUPS_OF_HOSTS = ROOT / "hermes" / "hermes_agent" / "policy" / "groups.toml"
"""What `group:python` and the like in `network.hosts` stand for."""


def test_no_file_names_a_package_registry() -> None:
    for path in tracked():
        if path.suffix in (".png", ".ico") or not path.is_file() or path == GROUPS_OF_HOSTS:
            continue
        found = REGISTRY_HOSTS.search(path.read_text(errors="replace"))
        assert found is None, f"{path.relative_to(ROOT)}: {found}"


INSTALLERS = re.compile(r"\b(?:pip3?|pipx|uv|uvx|easy_install|poetry|pdm)\b(?P<rest>.*)")
BY_NAME = re.compile(r"""(?<![\w/.~-])["'`]*hermes[-_]agent(?:\[[^\]]*\])?["'`]*\s*(?![\w/.=@:\[-])(?!\s*@)""")
WITH_EXTRA = re.compile(r"(?<![\w/.~-])hermes[-_]agent\[[\w, {}.-]+\](?!\s*@)")


def installs_by_name(line: str) -> bool:
    """Say whether a line installs the distribution from an index: there another product has its name."""
    called = INSTALLERS.search(line)
    verb = called is not None and re.search(r"\b(?:install|add|run|wheel|download)\b", called["rest"])
    return bool(WITH_EXTRA.search(line) or (called and verb and BY_NAME.search(called["rest"])))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pip install 'hermes-" + "agent[web]'", True),
        ("pip install --upgrade hermes-" + "agent", True),
        ("uv tool install hermes-" + "agent", True),
        ("pipx run hermes_" + "agent", True),
        ("install hermes-" + "agent[documents]", True),
        ("/opt/hermes-agent/bin/pip install '.[service]'", False),
        ("~/.local/share/hermes-agent/bin/pip install '.[local]'", False),
        ("pip install 'hermes-agent[web] @ git+file:///srv/it'", False),
        ("python -m pip install '/srv/hermes-agent[web]'", False),
        ("git clone URL-of-this-repository hermes-agent", False),
    ],
)
def test_the_rule_for_install_lines_knows_them_apart(line: str, expected: bool) -> None:
    assert installs_by_name(line) is expected


def test_no_text_installs_another_product_of_the_same_name_from_an_index() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:160]}"
        for path in tracked()
        if path.is_file() and "data" not in path.relative_to(ROOT).parts
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if "hermes" in line and installs_by_name(line)
    ]
    assert found == []


def test_every_package_has_its_tests() -> None:
    packages = {p.parent.name for p in OWN if p.name == "__init__.py" and p.parent.parent.name == "hermes_agent"}
    tested = {p.name for suite in ("unit", "e2e") for p in (ROOT / "tests" / suite).iterdir() if p.is_dir()}
    assert packages - tested - {"contracts", "adapters"} == set()


DECLARING = {
    "agent/session_commands.py",
    "commands/declarations.py",
    "mcp/servers.py",
    "plugins/blueprints.py",
    "plugins/live_tables.py",
    "plugins/registration.py",
    "plugins/status_text.py",
    "skills/feature.py",
    "tools/feature.py",
    "workspace/checkpoints.py",
}
"""Files that declare slash commands."""
ANSWERED_IN_PLACE = {"agent/command_router.py"}
"""Makes the answer for a command of a plugin that is not loaded."""


def test_slash_commands_are_declared_in_their_files_and_no_front_end_keeps_a_list_of_its_own() -> None:
    base = ROOT / "hermes" / "hermes_agent"
    declaring, tables = set(), []
    for path in OWN:
        text = path.read_text()
        if "SlashCommand" not in text and "HELP" not in text:
            continue
        tree = ast.parse(text)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        parts = [part for call in calls for part in (call.func, *call.args)]  # it may be an argument of partial()
        if any(_is_name(part, "SlashCommand") for part in parts):
            declaring.add(str(path.relative_to(base)))
        targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
        tables += [str(path) for target in targets if _is_name(target, "HELP")]
    assert declaring == DECLARING | ANSWERED_IN_PLACE
    assert tables == []


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


MOST_FILES = 570
"""Modules of the package; the number may fall."""


def test_the_package_does_not_grow_in_files() -> None:
    assert len([path for path in OWN if "_bundled" not in path.parts]) <= MOST_FILES

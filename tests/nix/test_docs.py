"""docs/nixos: every text of a refusal is explained, no other is; every option and every Nix snippet is right."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
EXPECTED = sorted(HERE.glob("refused*/*.expected"))
ROW = re.compile(r"^\| (`+) ?(.+?) ?\1 \|", re.MULTILINE)
SNIPPETS = [
    pytest.param(block, id=f"{page.name}:{number}")
    for page in sorted([DOCS.parent / "README.md", DOCS / "nix.md", *(DOCS / "nixos").glob("*.md")])
    for number, block in enumerate(re.findall(r"^```nix\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
]
OPTIONS_OF = """
let
  stub = { };
  lines = { config, pkgs, ps, hermes-agent }: { %s };
  found = lines { config = stub; pkgs = stub; ps = stub; hermes-agent.nixosModules.default = stub; };
  others = [ "services" "imports" "nixpkgs" "sops" "age" ];
in {
  hermes = builtins.attrNames (found.services.hermes-agent or { });
  top = builtins.filter (name: !(builtins.elem name others)) (builtins.attrNames found);
}
"""
"""Names of a snippet's options; Nix evaluates none of their values for it."""
UPSTREAM = """
enable package user group createUser stateDir workingDirectory settings configFile environment environmentFiles
authFile authFileForceOverwrite documents hermesHomeFiles mcpServers extraArgs extraPackages extraPlugins
extraPythonPackages extraDependencyGroups restart restartSec addToSystemPackages
"""
"""Options of upstream's native mode."""
MCP = """
command args env url headers auth enabled timeout connect_timeout tools.include tools.exclude sampling.enabled
sampling.model sampling.max_tokens_cap sampling.timeout sampling.max_rpm sampling.max_tool_rounds
sampling.allowed_models sampling.log_level
"""
GONE = """
enable backend image extraVolumes extraOptions hostUsers mode host port extraArgs waitFor interfaceName waitTimeout
sessionTokenFile profiles.<name> programs.hermes-agent.package programs.hermes-agent.desktop
"""
"""Below `container` and `backend`, and of a home's module."""


def explained() -> dict[str, re.Pattern[str]]:
    """The texts of refused.md, as patterns."""
    texts = [text for _, text in ROW.findall((DOCS / "nixos" / "refused.md").read_text()) if text != "text"]
    return {text: re.compile(".+?".join(map(re.escape, text.split("…")))) for text in texts}


def test_every_refusal_is_explained() -> None:
    patterns = explained()
    silent = [file.name for file in EXPECTED if not any(p.search(file.read_text()) for p in patterns.values())]
    assert silent == []


def test_no_explanation_is_of_a_text_that_nobody_says() -> None:
    said = [file.read_text() for file in EXPECTED]
    assert [text for text, pattern in explained().items() if not any(map(pattern.search, said))] == []


def test_every_option_of_upstreams_native_mode_is_there_and_its_move_described() -> None:
    moving = (DOCS / "nixos" / "moving.md").read_text()
    reference = (DOCS / "reference" / "nixos-options.md").read_text()
    assert [name for name in UPSTREAM.split() if f"`{name}`" not in moving or f"## `{name}`\n" not in reference] == []
    below = [name for name in MCP.split() if f"## `mcpServers.<name>.{name}`\n" not in reference]
    assert below + [name for name in (*MCP.split(), *GONE.split()) if f"`{name}`" not in moving] == []


def test_every_link_of_these_pages_leads_somewhere() -> None:
    pages = [*(DOCS / "nixos").glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())]
    assert len(links) > 10
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_nix_snippet_parses_and_sets_options_that_exist(snippet: str) -> None:
    if shutil.which("nix-instantiate") is None:
        pytest.skip("there is no nix-instantiate here")
    done = subprocess.run(
        ["nix-instantiate", "--eval", "--strict", "--json", "--expr", OPTIONS_OF % snippet],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    reference = (DOCS / "reference" / "nixos-options.md").read_text()
    options = [*names["hermes"], *names["top"]]  # some snippets leave out where the option belongs
    assert options
    assert [name for name in options if not re.search(rf"^## `{re.escape(name)}(`|\.)", reference, re.MULTILINE)] == []


def test_every_table_of_these_pages_begins_with_a_head() -> None:
    """A blank line within a table ends it: what follows is shown as text."""
    broken = []
    for page in (*(DOCS / "nixos").glob("*.md"), DOCS / "nix.md"):
        lines = page.read_text().splitlines()
        for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
            if line.startswith("|") and not before.startswith("|") and not after.startswith("| ---"):
                broken.append(f"{page.name}: {line[:60]}")
    assert broken == []


@pytest.mark.nix
@pytest.mark.parametrize("profile", ["strict", "workspace", "host"])
def test_commands_have_the_programs_that_the_page_lists_on_their_path(profile: str, nix) -> None:
    page = (DOCS / "nixos" / "sandbox.md").read_text()
    listed = re.search(r"In every profile the PATH of commands has (.+?),\s+the `extraPackages`", page, re.DOTALL)
    assert listed is not None
    names = re.findall(r"[a-z]+", listed[1].replace(" and ", " "))
    assert {"curl", "tar", "awk", "diff", "ps", "git"} <= set(names)
    unit = (nix.build(f"sandboxed.{profile}.toplevel").path / "hermes-exec@.service").read_text()
    path = re.search(r'"PATH=([^"]+)"', unit)
    assert path is not None
    folders = [Path(folder) for folder in path[1].split(":") if folder.startswith("/nix/store/")]
    program = {"coreutils": "ls", "findutils": "find"}
    lacking = [name for name in names if not any((folder / program.get(name, name)).exists() for folder in folders)]
    assert lacking == []

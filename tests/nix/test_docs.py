"""docs/nixos: every text of a refusal is explained, no other is; every option is named for people who move over."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
EXPECTED = sorted(HERE.glob("refused*/*.expected"))
ROW = re.compile(r"^\| (`+) ?(.+?) ?\1 \|", re.MULTILINE)
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

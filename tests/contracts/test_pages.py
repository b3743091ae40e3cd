"""docs/plugins/kinds/: every kind has a page, and the signatures on it are the code's."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from hermes_agent.plugins.context import PluginContext
from hermes_agent.plugins.host_services import KINDS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "plugins" / "kinds"
EXAMPLES = ROOT / "tests" / "plugins" / "examples"


def outline(contract: type) -> str:
    """Return the class as its page prints it: fields, then methods with their signatures, the required ones marked."""
    required = getattr(contract, "__abstractmethods__", frozenset())
    fields, methods, seen = [], [], set()
    for cls in contract.__mro__:
        if not cls.__module__.startswith("hermes_agent."):
            continue
        for name, value in vars(cls).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            mark = "  # required" if name in required else ""
            if isinstance(value, property):
                fields.append(f"    {name}: {inspect.signature(value.fget).return_annotation}{mark}")
            elif inspect.isfunction(value) or isinstance(value, staticmethod):
                function = value.__func__ if isinstance(value, staticmethod) else value
                signature = re.sub(r"(?<=[:>] )'([^']*)'", r"\1", str(inspect.signature(function)))
                word = "async def" if inspect.iscoroutinefunction(function) else "def"
                static = "  # static" if isinstance(value, staticmethod) else ""
                methods.append(f"    {word} {name}{signature}: ...{mark}{static}")
            else:
                fields.append(f"    {name} = {value!r}")
    return "\n".join([f"class {contract.__name__}:", *fields, *methods])


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_prints_the_contract_as_it_is(kind: str) -> None:
    page = (PAGES / f"{kind}.md").read_text()
    spec = KINDS[kind]

    assert f"```python\n{outline(spec.contract)}\n```" in page
    parameter = next(iter(list(inspect.signature(getattr(PluginContext, spec.kind.ctx_method)).parameters)[1:]))
    assert f"`ctx.{spec.kind.ctx_method}({parameter})`" in page
    assert spec.kind.is_used or "this release has no consumer" in page.lower()
    assert f"(../../../tests/plugins/examples/{kind})" in page


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_an_example_a_suite_and_an_import_name(kind: str) -> None:
    assert (EXAMPLES / kind / "plugin.yaml").is_file()
    assert (Path(__file__).parent / f"test_{kind}.py").is_file()
    assert f"from {upstream_module(kind)} import" in (PAGES / f"{kind}.md").read_text()


def upstream_module(kind: str) -> str:
    """Return the module that the example imports the contract from."""
    text = (EXAMPLES / kind / "__init__.py").read_text()
    found = re.search(r"^from ((?:agent|hermes_cli|cron)[\w.]*) import", text, re.MULTILINE)
    assert found is not None
    return found[1]


def test_no_page_is_of_a_kind_that_is_not_there() -> None:
    assert {p.stem for p in PAGES.glob("*.md")} >= set(KINDS)

"""Middleware (docs/plugins/kinds/middleware.md): registered by a plugin, through a real host."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.contracts.hook import MIDDLEWARE, MIDDLEWARE_KEYWORDS, MIDDLEWARE_SCHEMA, VALID_MIDDLEWARE
from hermes_agent.host import Host
from hermes_agent.plugins.context import PluginContext

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins" / "kinds" / "middleware.md").read_text(encoding="utf-8")
Start = Callable[..., Host]
CHAIN = """
def more(args, original_args, middleware_schema_version, **kwargs):
    assert middleware_schema_version == "hermes.middleware.v1"
    return {"args": {"n": args["n"] + 1, "first": original_args["n"]}}


def broken(**kwargs):
    raise ValueError("left out")


def register(ctx):
    for callback in (more, broken, lambda **kwargs: None, more):
        ctx.register_middleware("tool_request", callback)
    ctx.register_middleware("tool_execution", lambda next_call, **kwargs: f"<{next_call()}>")
"""


def test_the_example_registers_all_four_kinds_and_its_tool_calls_go_through_them(start: Start, home: Path) -> None:
    project = home.parent / "project"
    project.mkdir()
    host = start("middleware", config=f"terminal:\n  cwd: {project}\n")
    (record,) = host.plugins.records
    assert (record.error, record.middleware_registered) == (None, list(VALID_MIDDLEWARE))
    assert record.summary()["middleware"] == 4
    assert "(4 middleware)" in host.plugins.status_text()
    assert host.plugins.has_middleware("llm_execution")

    (project / "a.txt").write_text("hello")
    text = host.plugins.contexts["example-middleware"].dispatch_tool("read_file", {"path": "  a.txt "})
    assert "hello" in text
    assert [name for name, _ in record.module.timings] == ["read_file"]


def test_an_unknown_kind_is_kept_with_a_warning_that_names_the_nearest(
    home: Path, served: None, caplog: pytest.LogCaptureFixture
) -> None:
    write(home, "odd", "def register(ctx):\n    ctx.register_middleware('tool_requests', lambda **kw: None)\n")
    (record,) = run(home, "odd").plugins.records

    assert record.middleware_registered == ["tool_requests"]
    assert record.notes == ["unknown middleware `tool_requests`; did you mean 'tool_request'?"]
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert line == (
        "Plugin 'odd' registered unknown middleware 'tool_requests' (valid: tool_request, tool_execution,"
        " llm_request, llm_execution); did you mean 'tool_request'?"
    )


def test_what_a_plugin_registered_before_it_failed_is_taken_back(home: Path, served: None) -> None:
    body = "def register(ctx):\n    ctx.register_middleware('tool_request', lambda **kw: None)\n    raise ValueError\n"
    write(home, "half", body)
    host = run(home, "half")
    (record,) = host.plugins.records

    assert (record.error, record.middleware_registered) == ("ValueError", [])
    assert not host.plugins.has_middleware("tool_request")


def test_upstream_s_names_answer(start: Start) -> None:
    start("middleware")
    from hermes_cli import plugins

    assert set(VALID_MIDDLEWARE) == plugins.VALID_MIDDLEWARE
    assert plugins.has_middleware("tool_request")
    assert list(plugins.get_plugin_manager()._middleware) == list(VALID_MIDDLEWARE)


def test_upstream_s_invoke_middleware_goes_through_what_plugins_registered(home: Path, served: None) -> None:
    write(home, "chain", CHAIN)
    run(home, "chain")
    from hermes_cli import plugins

    assert plugins.invoke_middleware("tool_request", tool_name="t", args={"n": 1}) == [
        {"args": {"n": 2, "first": 1}},
        {"args": {"n": 3, "first": 1}},
    ]
    manager = plugins.get_plugin_manager()
    assert manager.invoke_middleware("tool_execution", args={"n": 1}, next_call=lambda args: f"ran {args['n']}") == [
        "<ran 1>"
    ]
    with pytest.raises(TypeError, match="next_call=None"):
        plugins.invoke_middleware("tool_execution", args={})
    with pytest.raises(KeyError, match="gone"):
        plugins.invoke_middleware("tool_execution", args={}, next_call=lambda args: {}["gone"])
    assert plugins.invoke_middleware("llm_request", request={}) == []


def test_the_page_names_every_kind_with_its_keywords() -> None:
    for kind, keywords in MIDDLEWARE_KEYWORDS.items():
        assert f"| `{kind}` | {', '.join(f'`{k}`' for k in keywords)} |" in PAGE
    assert f'`middleware_schema_version="{MIDDLEWARE_SCHEMA}"`' in PAGE
    assert f"`ctx.{MIDDLEWARE.ctx_method}(kind, callback)`" in PAGE
    assert hasattr(PluginContext, MIDDLEWARE.ctx_method)
    assert hasattr(PluginContext, MIDDLEWARE.ctx_method)


def test_the_page_prints_the_example() -> None:
    example = (ROOT / "tests" / "plugins" / "examples" / "middleware" / "__init__.py").read_text(encoding="utf-8")

    assert example.partition("\n\n")[2].strip() in PAGE


def write(home: Path, name: str, body: str) -> None:
    place = home / "plugins" / name
    place.mkdir(parents=True)
    (place / "plugin.yaml").write_text(f"name: {name}\n")
    (place / "__init__.py").write_text(body)


def run(home: Path, name: str) -> Host:
    (home / "config.yaml").write_text(f"plugins:\n  enabled: [{name}]\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()
    return host

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hermes_agent.config.schema import (
    USED,
    default,
    effect,
    is_secret,
    leaves,
    load_schema,
    lookup,
    resolve,
)
from hermes_agent.config.validate import validate
from hermes_agent.core.secrecy import looks_like_secret_name

SOURCE = Path(__file__).parents[3] / "hermes" / "hermes_agent"

# The top-level keys of the published configuration, and the defaults that plugins may rely on.
_KNOWN = """
model providers custom_providers fallback_providers credential_pool_strategies toolsets platform_toolsets
known_plugin_toolsets max_concurrent_sessions max_live_sessions agent terminal web browser checkpoints
tool_output file_read_max_chars tool_loop_guardrails compression prompt_caching openrouter bedrock vertex
auxiliary display dashboard privacy tts stt voice human_delay context memory delegation skills curator goals
moa kanban onboarding updates lsp x_search code_execution desktop computer_use slack discord telegram whatsapp
mattermost matrix approvals command_allowlist quick_commands platform_hints personalities hooks
hooks_auto_accept security cron tools mcp mcp_discovery_timeout logging network gateway streaming sessions
secrets plugins mcp_servers platforms image_gen video_gen group_sessions_per_user thread_sessions_per_user
reset_triggers _config_version
"""
KNOWN = sorted(set(_KNOWN.split()))
DEFAULTS = {
    "agent.max_turns": 90,
    "agent.gateway_timeout": 1800,
    "agent.api_max_retries": 3,
    "agent.tool_use_enforcement": "auto",
    "agent.max_verify_nudges": 3,
    "agent.verify_on_stop": "auto",
    "agent.clarify_timeout": 3600,
    "agent.disabled_toolsets": [],
    "toolsets": ["hermes-cli"],
    "max_concurrent_sessions": None,
    "max_live_sessions": 16,
    "terminal.backend": "local",
    "terminal.cwd": ".",
    "terminal.timeout": 180,
    "terminal.env_passthrough": [],
    "terminal.docker_image": "nikolaik/python-nodejs:python3.11-nodejs20",
    "tool_output.max_bytes": 50000,
    "tool_output.max_lines": 2000,
    "tool_output.max_line_length": 2000,
    "file_read_max_chars": 100000,
    "compression.threshold": 0.5,
    "compression.target_ratio": 0.2,
    "compression.protect_first_n": 3,
    "compression.protect_last_n": 20,
    "compression.in_place": True,
    "auxiliary.transient_retries": 2,
    "auxiliary.vision.timeout": 120,
    "auxiliary.web_extract.timeout": 360,
    "auxiliary.curator.timeout": 60,
    "auxiliary.curator.provider": "auto",
    "context.engine": "compressor",
    "memory.provider": "",
    "delegation.max_iterations": 50,
    "delegation.max_summary_chars": 24000,
    "skills.template_vars": True,
    "skills.inline_shell_timeout": 10,
    "approvals.mode": "smart",
    "approvals.timeout": 60,
    "approvals.cron_mode": "deny",
    "approvals.deny": [],
    "hooks_auto_accept": False,
    "security.redact_secrets": True,
    "cron.output_retention": 50,
    "tools.tool_search.threshold_pct": 10,
    "tools.tool_search.enabled": "auto",
    "mcp.auto_reload_on_config_change": True,
    "mcp_discovery_timeout": 1.5,
    "logging.level": "INFO",
    "logging.max_size_mb": 5,
    "logging.backup_count": 3,
    "streaming.edit_interval": 0.8,
    "streaming.buffer_threshold": 24,
    "streaming.cursor": " ▉",
    "plugins.enabled": [],
    "plugins.auto_enable": False,
    "plugins.hook_timeout_s": 10,
    "server.host": "127.0.0.1",
    "server.port": 8642,
    "server.drain_timeout_s": 20,
}


def _schemas(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema inside `node`, itself included."""
    yield node
    for key in ("properties", "$defs"):
        for sub in node.get(key, {}).values():
            yield from _schemas(sub)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _schemas(node[key])


def test_the_schema_is_a_valid_json_schema_of_2020_12() -> None:
    assert load_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(load_schema())


KEYWORDS = frozenset(
    {"$schema", "$defs", "$ref", "title", "description", "type", "default", "enum", "minimum", "maximum"}
    | {"minLength", "pattern", "items", "properties", "additionalProperties"}
)
ANNOTATIONS = frozenset(
    {
        "x-unit",
        "x-effect",
        "x-protects",
        "x-idle",
        "x-renamed",
        "x-secret",
        "x-open",
        "x-what",
        "x-text-is",
        "x-false-is",
        "x-true-is",
    }
)


def test_the_schema_uses_no_keyword_that_our_validator_does_not_know() -> None:
    used = {keyword for schema in _schemas(load_schema()) for keyword in schema}
    assert used - KEYWORDS - ANNOTATIONS == set()


def test_a_reference_is_never_widened_beside_it() -> None:
    for schema in _schemas(load_schema()):
        if "$ref" in schema:
            shared = load_schema()["$defs"][schema["$ref"].removeprefix("#/$defs/")]
            assert set(schema.get("properties", {})) <= set(shared.get("properties", {}))
            assert "additionalProperties" not in schema


def test_every_key_says_in_a_sentence_what_it_is() -> None:
    for schema in _schemas(load_schema()):
        for key, sub in schema.get("properties", {}).items():
            text = resolve(sub)["description"]
            assert text.endswith(".") and text[0] == text[0].upper(), (key, text)


def test_every_key_is_used_or_says_in_a_sentence_why_it_has_no_effect() -> None:
    for path, _ in leaves():
        said = effect(path)
        assert said == USED or (said.endswith(".") and " " in said), path


def test_every_number_that_has_a_unit_by_its_name_names_it() -> None:
    for path, node in leaves():
        if re.search(r"(timeout|_s|_seconds|interval|_bytes|_chars|_mb)$", str(path[-1])) and "type" in node:
            assert "x-unit" in node or node["type"] == "boolean", path


def test_every_default_is_valid_by_its_own_schema() -> None:
    for path, node in leaves():
        if "default" in node and "<name>" not in path:
            assert validate(node["default"], node) == [], path
    assert validate(default(load_schema())) == []


@pytest.mark.parametrize("key", KNOWN)
def test_every_published_top_level_key_is_declared(key: str) -> None:
    assert key in load_schema()["properties"]


@pytest.mark.parametrize("path", DEFAULTS)
def test_a_published_default_holds(path: str) -> None:
    node = lookup(tuple(path.split(".")))
    assert node is not None
    assert default(node) == DEFAULTS[path]


def test_a_text_whose_name_looks_like_a_secret_says_whether_it_is_one() -> None:
    for path, node in leaves():
        named = [part for part in path if part != "<name>" and looks_like_secret_name(str(part))]
        if named and "string" in str(node.get("type")) and "enum" not in node:
            declared = [lookup(path[: i + 1]) for i in range(len(path))]
            assert any("x-secret" in (d or {}) for d in declared), path


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        (("model", "api_key"), True),
        (("model", "max_tokens"), False),
        (("server", "key"), True),
        (("providers", "x", "headers", "Authorization"), True),
        (("providers", "x", "api_key_env"), False),
        (("mcp_servers", "x", "env", "ANY"), True),
        (("mcp_servers", "x", "client_key"), False),
        (("weather", "api_key"), True),
        (("weather", "credentials", "user"), True),
        (("weather", "units"), False),
        (("platforms", "irc", "nickserv_password"), True),
        (("auxiliary", "vision", "api_key"), True),
        (("security", "redact_secrets"), False),
    ],
)
def test_secrets_are_known_by_the_schema_and_by_name_where_nothing_is_declared(
    path: tuple[str, ...], secret: bool
) -> None:
    assert is_secret(path) is secret


def test_our_own_code_reads_only_declared_keys_that_are_marked_as_used() -> None:
    reads = re.compile(r"\bconfig(?:_get)?(?:\.get)?\(\s*\"([a-z_.]+)\"")
    wrong = []
    for file in SOURCE.rglob("*.py"):
        if file.parent.name in ("config", "upstream"):
            continue
        for name in reads.findall(file.read_text(encoding="utf-8")):
            path = tuple(name.split("."))
            if lookup(path) is None or "description" not in (lookup(path) or {}) or effect(path) != USED:
                wrong.append(f"{file.relative_to(SOURCE)}: {name}")
    assert wrong == []

"""Upstream's constants, conversions, estimates, paths and tables, called once each. Values are those of 0.19.0."""

from __future__ import annotations

import importlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.host import Host

pytestmark = pytest.mark.usefixtures("served")


def module(name: str) -> Any:
    return importlib.import_module(name)


def test_settings_are_read_as_booleans_and_addresses_as_hosts() -> None:
    utils = module("utils")

    values = ("yes", "ON", " true ", "0", "", None, 1, 0, True, 2, "enabled")
    assert [utils.is_truthy_value(v) for v in values] == [True] * 3 + [False] * 3 + [True, False, True, True, False]
    assert utils.is_truthy_value(None, True)
    assert [utils.base_url_hostname(u) for u in ("https://API.x.ai/v1", "x.ai:80/p", "", None)] == [
        "api.x.ai",
        "x.ai",
        "",
        "",
    ]
    assert utils.base_url_host_matches("https://API.x.ai/v1", "x.ai")
    assert not utils.base_url_host_matches("https://x.ai.evil.example", "x.ai")
    proxies = ("socks://1.2.3.4:1", " http://a ", "", None, "socks5h://x")
    assert [utils.normalize_proxy_url(p) for p in proxies] == [
        "socks5://1.2.3.4:1",
        "http://a",
        None,
        None,
        "socks5h://x",
    ]
    assert (utils.safe_json_loads('{"a": 1}'), utils.safe_json_loads("x", 3)) == ({"a": 1}, 3)
    assert utils.safe_json_loads(None) is None
    assert utils.model_forces_max_completion_tokens("openai/gpt-5.4-mini")
    assert not utils.model_forces_max_completion_tokens("gpt-3.5-turbo")


def test_yaml_files_are_written_as_a_whole_and_changed_with_their_comments(tmp_path: Path) -> None:
    utils = module("utils")
    file = tmp_path / "below" / "a.yaml"

    utils.atomic_yaml_write(file, {"b": ["ä"], "a": 1}, extra_content="# end\n")
    assert file.read_text() == "b:\n  - ä\na: 1\n# end\n"
    utils.atomic_roundtrip_yaml_update(file, "c.d", True)
    assert utils.fast_safe_load(file.read_text()) == {"b": ["ä"], "a": 1, "c": {"d": True}}
    assert "# end" in file.read_text()
    file.write_text("- a list\n")
    with pytest.raises(ValueError, match=r"a\.yaml is no YAML mapping"):
        utils.atomic_roundtrip_yaml_update(file, "c.d", True)


def test_secrets_are_shown_in_part_and_masked_in_logs() -> None:
    redact, config = module("agent.redact"), module("hermes_cli.config")

    keys = ("", "short", "123456789012", "sk-abcdefghijklmnopqrstuvwxyz")
    assert [redact.mask_secret(k) for k in keys] == ["", "***", "1234...9012", "sk-a...wxyz"]
    assert config.redact_key("") == "(not set)"
    shown = config.redact_config_value({"a": [{"api_key": "sk-abcdefghijklmnopqrstuvwxyz", "port": 1}]})
    assert shown == {"a": [{"api_key": "sk-a...wxyz", "port": 1}]}
    line = "key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    record = logging.LogRecord("x", logging.INFO, "x", 1, line, (), None)
    assert "abcdefghijklmnop" not in redact.RedactingFormatter("%(message)s").format(record)


def test_addresses_with_secrets_and_of_cloud_machines_are_known() -> None:
    safety = module("tools.url_safety")

    assert safety.sensitive_query_param_name("https://a/?b=1&token=abcdef123456") == "token"
    assert not safety.has_sensitive_query_params("https://a/?b=1")
    blocked = ("http://169.254.169.254/x", "http://metadata.google.internal", "http://100.100.100.200/")
    assert all(map(safety.is_always_blocked_url, blocked))
    assert not any(map(safety.is_always_blocked_url, ("http://10.0.0.1", "http://example.com", "http://127.0.0.1")))
    assert (
        safety.normalize_url_for_request("https://wttr.in/Köln?q=ä b#ü")
        == "https://wttr.in/K%C3%B6ln?q=%C3%A4%20b#%C3%BC"
    )
    assert safety.normalize_url_for_request("https://bücher.de/a%20b") == "https://xn--bcher-kva.de/a%20b"


async def test_an_address_is_checked_outside_of_the_event_loop(host: Host) -> None:
    assert not await module("tools.url_safety").async_is_safe_url("http://127.0.0.1/x")


def test_efforts_formats_and_names_are_read() -> None:
    effort = module("hermes_constants").parse_reasoning_effort

    assert [effort(e) for e in ("none", False, "", "weird", None, True)] == [{"enabled": False}] * 2 + [None] * 4
    assert effort("HIGH ") == {"enabled": True, "effort": "high"}
    assert module("agent.tts_provider").resolve_output_format("zzz") == "mp3"
    assert module("tools.mcp_tool").mcp_prefixed_tool_name("my-server", "a.b") == "mcp__my_server__a_b"
    assert isinstance(
        module("agent.plugin_llm").PluginLlmTextInput("x"), module("agent.plugin_llm").PluginLlmInput.__args__
    )
    assert (
        module("tools.web_tools").convert_base64_images_to_links("a ![x](data:image/png;base64,AAAA) b")
        == "a [IMAGE: x] b"
    )


def test_schedules_are_read_in_upstream_s_form() -> None:
    parse = module("cron.jobs").parse_schedule

    assert parse("every 30m") == {"kind": "interval", "display": "every 30m", "minutes": 30}
    assert parse("0 9 * * *")["expr"] == "0 9 * * *"
    assert parse("30m")["kind"] == parse("2030-02-03 14:00")["kind"] == "once"
    with pytest.raises(ValueError, match=r"Invalid schedule 'nonsense'.*For example `every 30m`"):
        parse("nonsense")


def test_counts_and_durations_are_short() -> None:
    pricing = module("agent.usage_pricing")

    counts = (0, 999, 1000, 1500, 9999, 12345, 123456, 999999, 3456789, 1234567890, -1500)
    assert [pricing.format_token_count_compact(n) for n in counts] == (
        ["0", "999", "1K", "1.5K", "10K", "12.3K", "123K", "1000K", "3.46M", "1.23B", "-1.5K"]
    )
    durations = (0, 59.6, 61, 150, 3599, 3600, 3660, 86399, 86400, 129600)
    assert [pricing.format_duration_compact(s) for s in durations] == (
        ["0s", "60s", "1m", "2m", "60m", "1h", "1h 1m", "23h 59m", "1.0d", "1.5d"]
    )


async def test_tokens_and_context_windows_are_estimated_without_a_request(host: Host) -> None:
    models = module("agent.model_metadata")

    assert [models.estimate_tokens_rough(t) for t in ("", "a", "abcde")] == [0, 1, 2]
    messages = [{"role": "user", "content": "hello world"}]
    assert module("agent.context_compressor").estimate_messages_tokens_rough(messages) > 2
    assert models.estimate_request_tokens_rough(messages, system_prompt="x" * 400, tools=[{"a": 1}]) > 100
    assert models.get_model_context_length("m", config_context_length=9) == 9
    assert models.get_model_context_length("unheard-of") == models.DEFAULT_FALLBACK_CONTEXT
    assert await models.get_model_context_length_async("unheard-of") == models.DEFAULT_FALLBACK_CONTEXT
    local = ("http://localhost:1", "http://127.0.0.1/v1", "http://host.docker.internal:1", "http://10.0.0.4", "nas:80")
    assert all(map(models.is_local_endpoint, local))
    assert not any(map(models.is_local_endpoint, ("https://api.openai.com", "", "http://nas.lan", "http://8.8.8.8")))
    assert not module("agent.usage_pricing").has_known_pricing("unheard-of")


def test_paths_stay_in_their_folder(tmp_path: Path) -> None:
    security = module("tools.path_security")
    (tmp_path / "link").symlink_to("/etc")

    assert security.validate_within_dir(tmp_path / "a" / ".." / "b", tmp_path) is None
    assert "escapes allowed directory" in security.validate_within_dir(tmp_path / "link" / "passwd", tmp_path)
    assert security.has_traversal_component("a/../b")
    assert not security.has_traversal_component("a..b/c")


def test_the_home_its_profiles_and_its_folders_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants, profiles, config = module("hermes_constants"), module("hermes_cli.profiles"), module("hermes_cli.config")

    config.ensure_hermes_home()
    assert (home / "skills").is_dir()
    assert constants.get_process_hermes_home() == home
    assert constants.get_hermes_home_override() is None
    assert (constants.get_config_path(), constants.get_env_path()) == (home / "config.yaml", home / ".env")
    assert constants.get_skills_dir() == home / "skills"
    assert (profiles.get_active_profile(), profiles.profile_exists("default")) == ("default", True)
    assert profiles.get_profile_dir("Work") == home / "profiles" / "work"
    assert not profiles.profile_exists("work") and not profiles.profile_exists("")
    with pytest.raises(ValueError, match="cannot be the name of a profile"):
        profiles.validate_profile_name("Not Valid")
    monkeypatch.setenv("HOME", str(home / "home"))
    env: dict[str, str] = {"HOME": str(home / "home")}
    constants.apply_subprocess_home_env(env)
    assert env["HOME"] == constants.get_real_home() == constants.get_subprocess_home() != str(home / "home")
    assert constants.get_subprocess_home({"HOME": "/home/ann"}) is None
    assert constants.find_node_executable_on_path("no-such-program") is None
    assert constants.iter_hermes_node_dirs()[0] == home / "node" / "bin"
    secret = home / "cache" / "deep" / "file"
    secret.parent.mkdir(parents=True)
    secret.parent.chmod(0o755)
    constants.secure_parent_dir(secret)
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    assert isinstance(constants.is_container(), bool) and not constants.is_termux() and not constants.is_wsl()
    assert (config.get_project_root() / "hermes_agent").is_dir()
    assert module("hermes_cli.plugins").get_bundled_plugins_dir().is_absolute()


def test_settings_are_listed_set_and_removed(home: Path, host: Host) -> None:
    config = module("hermes_cli.config")

    assert config.DEFAULT_CONFIG["agent"]["max_turns"] == 90
    config.DEFAULT_CONFIG["agent"].setdefault("my_plugin", {"depth": 3})
    try:
        assert config.load_config()["agent"]["my_plugin"] == {"depth": 3}
    finally:
        del config.DEFAULT_CONFIG["agent"]["my_plugin"]
    assert "my_plugin" not in config.load_config()["agent"]
    config.set_config_value("agent.max_turns", "12")
    assert config.load_config()["agent"]["max_turns"] == 12
    config.unset_config_value("agent.max_turns")
    assert config.load_config()["agent"]["max_turns"] == 90
    assert not config.is_managed()
    assert config.OPTIONAL_ENV_VARS["OPENROUTER_API_KEY"]["password"] is True
    assert config.OPTIONAL_ENV_VARS is module("hermes_cli.config_defaults").OPTIONAL_ENV_VARS
    config.OPTIONAL_ENV_VARS.update(MINE={"description": "mine", "password": False})
    assert config.OPTIONAL_ENV_VARS.pop("OPENROUTER_API_KEY")
    assert "MINE" in config.OPTIONAL_ENV_VARS and "OPENROUTER_API_KEY" not in config.OPTIONAL_ENV_VARS
    assert "MINE" in [row["name"] for row in config.get_missing_env_vars()]
    assert config.get_missing_env_vars(required_only=True) == []
    assert config.save_env_value_secure("MY_TOKEN", "abcdef1234567890")["success"] is True
    os.environ["MY_TOKEN"] = "older"
    assert config.get_env_value_prefer_dotenv("MY_TOKEN") == "abcdef1234567890"
    assert config.reload_env() == 1
    assert os.environ.pop("MY_TOKEN") == "abcdef1234567890"
    assert [config.is_provider_enabled(c) for c in ({"enabled": False}, {"enabled": "no"}, None, {})] == (
        [False, False, True, True]
    )
    own = {"providers": {"mine": {"base_url": "http://a", "default_model": "m"}, "openai": {"api_key_env": "X"}}}
    assert config.get_compatible_custom_providers(own) == [
        {"name": "mine", "provider_key": "mine", "base_url": "http://a", "model": "m"}
    ]
    assert module("tools.tts_tool").get_env_value("NOT_THERE", "else") == "else"
    assert module("tools.tool_output_limits").get_tool_output_limits()["max_lines"] == 2000
    assert module("tools.env_passthrough").get_all_passthrough() == frozenset()
    assert not module("tools.env_passthrough").is_env_passthrough("PATH")
    assert module("tools.website_policy").load_website_blocklist() == {}


def test_providers_are_listed_by_name_and_alias(host: Host) -> None:
    models, providers = module("hermes_cli.models"), module("hermes_cli.providers")

    slugs = [entry.slug for entry in models.CANONICAL_PROVIDERS]
    assert "openrouter" in slugs
    models.CANONICAL_PROVIDERS.append(models.ProviderEntry("mine", "Mine", "mine"))
    assert models.CANONICAL_PROVIDERS[-1].slug == "mine"
    assert providers.normalize_provider("OpenRouter") == "openrouter"
    assert providers.normalize_provider("Unheard") == models.normalize_provider("Unheard") == "unheard"
    assert models.provider_label("unheard") == "unheard"
    assert models.parse_model_input("openrouter:a/b", "now") == ("openrouter", "a/b")
    assert models.parse_model_input("a/b:beta", "now") == ("now", "a/b:beta")
    assert {row["id"] for row in models.list_available_providers()} == set(slugs)
    assert all(target in slugs for target in providers.ALIASES.values())


def test_commands_and_platforms_are_listed(host: Host) -> None:
    commands, platforms = module("hermes_cli.commands"), module("hermes_cli.platforms")

    assert set(commands.COMMANDS) == set(commands.COMMANDS_BY_CATEGORY["Session"])
    assert all(name.startswith("/") for name in commands.COMMANDS)
    assert len(commands.gateway_help_lines()) == len(host.commands.help_rows("chat"))
    assert commands.telegram_bot_commands() == host.commands.menu("chat")
    assert not commands.should_bypass_active_session(None)
    assert all(map(commands.should_bypass_active_session, commands.GATEWAY_KNOWN_COMMANDS))
    assert platforms.get_all_platforms()["cli"].default_toolset == "hermes-cli"
    assert platforms.platform_label("nowhere", "x") == "x"


def test_tools_and_their_toolsets_are_listed(host: Host) -> None:
    tools = module("model_tools")

    assert tools.TOOL_TO_TOOLSET_MAP["read_file"] == tools.get_toolset_for_tool("read_file") == "file"
    assert set(tools.get_all_tool_names()) == set(tools.TOOL_TO_TOOLSET_MAP)
    assert tools.check_toolset_requirements()["file"] is True
    assert "read_file" in tools.get_available_toolsets()["file"]["tools"]
    assert tools.coerce_tool_args("read_file", {"limit": "5"}) == {"limit": 5}
    assert module("tools.terminal_tool").TERMINAL_SCHEMA["name"] == "terminal"
    assert module("tools.memory_tool").check_memory_requirements() is True
    assert module("toolsets").get_toolset("file", include_registry=False)["tools"]
    assert json.loads(json.dumps(module("tools.skills_tool").SKILL_VIEW_SCHEMA))["name"] == "skill_view"


def test_a_picture_in_a_result_reaches_the_model_as_text(host: Host) -> None:
    from hermes_agent.tools.results import is_result, result_text

    vision = module("tools.vision_tools")
    result = vision._build_native_vision_tool_result("a.png", "What is it?", "data:image/png;base64,AAAA", 3)

    assert is_result(result)
    assert result_text("look", result) == "Image a.png (3 bytes). What is it?"
    assert not vision._should_use_native_vision_fast_path()


def test_guards_are_asked_without_a_call(host: Host) -> None:
    plugins = module("hermes_cli.plugins")
    answers = {"bad": {"action": "block", "message": "not that"}, "ask": {"action": "approve", "message": "may it?"}}
    host.hooks.add("pre_tool_call", lambda tool_name, **kw: answers.get(tool_name), "guard")
    host.hooks.add("pre_verify", lambda **kw: {"action": "continue", "message": f"run {kw['changed_paths']}"}, "guard")

    assert plugins.get_pre_tool_call_directive("bad", {}) == ("block", "not that")
    assert plugins.get_pre_tool_call_directive("ask", {}) == ("approve", "may it?")
    assert plugins.get_pre_tool_call_directive("good", {}) == (None, None)
    assert [plugins.get_pre_tool_call_block_message(n, None) for n in ("bad", "ask")] == ["not that", None]
    assert plugins.resolve_pre_tool_block("good", {}) is None
    assert "needs approval" in plugins.resolve_pre_tool_block("ask", {})
    assert plugins.get_pre_verify_continue_message(changed_paths=["a.py"]) == "run ['a.py']"
    assert plugins.get_plugin_context_engine() is None


def test_the_session_of_approvals_is_bound_and_restored(host: Host) -> None:
    approval = module("tools.approval")

    token = approval.set_current_session_key("telegram:1")
    assert approval.get_current_session_key() == "telegram:1"
    approval.reset_current_session_key(token)
    assert approval.get_current_session_key() != "telegram:1"
    assert not approval.is_approval_bypass_active()
    assert approval.load_permanent_allowlist() == set()


def test_features_say_what_they_need() -> None:
    deps = module("tools.lazy_deps")

    assert deps.feature_specs("platform.telegram") == ("python-telegram-bot",)
    assert deps.feature_install_command("platform.telegram") == "pip install python-telegram-bot"
    assert (deps.feature_install_command("nope"), deps.is_available("nope")) == (None, False)


def test_skills_are_found_in_folders_and_described(home: Path, host: Host) -> None:
    skills, tool = module("agent.skill_utils"), module("tools.skills_tool")
    for place in ("a/tea", "a/tea/references/old", "b/.git/x", "node_modules/y"):
        (home / "skills" / place).mkdir(parents=True)
        (home / "skills" / place / "SKILL.md").write_text("---\nname: tea\ndescription: Make tea\n---\nBoil water.\n")

    assert list(skills.iter_skill_index_files(home / "skills", "SKILL.md")) == [home / "skills/a/tea/SKILL.md"]
    assert skills.is_excluded_skill_path(home / "skills/a/tea/references/old/SKILL.md")
    assert skills.get_all_skills_dirs() == [home / "skills"]
    assert skills.normalize_skill_lookup_name(str(home / "skills/a/tea")) == "a/tea"
    assert skills.normalize_skill_lookup_name("/abs/x") == "/abs/x"
    assert len(skills.extract_skill_description({"description": "x" * 500})) == 60
    assert [skills.skill_matches_platform_list(p) for p in (["linux"], "windows", None)] == [True, False, True]
    assert skills.skill_matches_environment({})
    assert skills.yaml_load("a: 1") == {"a": 1}
    front = {"required_environment_variables": ["A", {"name": "B", "prompt": "p", "help": "h"}]}
    assert tool._get_required_environment_variables(front, ["L"]) == [
        {"name": "A", "prompt": "Enter value for A"},
        {"name": "B", "prompt": "p", "help": "h"},
        {"name": "L", "prompt": "Enter value for L"},
    ]
    assert tool._parse_frontmatter("---\nname: x\n---\nbody")[0] == {"name": "x"}
    commands = module("agent.skill_commands")
    assert commands.resolve_skill_command_key("tea") == "/tea"
    assert commands.resolve_skill_command_key("no") is None
    assert "Boil water." in commands.build_skill_invocation_message("/tea", "green")
    assert commands.build_skill_invocation_message("/no") is None


def test_memories_are_listed_without_running_them(home: Path, host: Host) -> None:
    memory = module("plugins.memory")
    folder = home / "plugins" / "mine"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: mine\nkind: exclusive\ndescription: Mine\nrequires_env: [NOT_SET_X]\n")
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")

    assert ("mine", "Mine", False) in memory.discover_memory_providers()
    assert memory.load_memory_provider("mine") is None
    assert memory._get_active_memory_provider() is None
    assert module("agent.memory_manager").build_memory_context_block("likes tea").startswith("<memory-context>")


def test_a_gateway_config_is_made_from_a_mapping(host: Host) -> None:
    config, source = module("gateway.config"), module("gateway.session").SessionSource

    made = config.GatewayConfig.from_dict(
        {"platforms": {"local": {"enabled": True}, "nowhere": {}}, "reset_triggers": ["/new"], "stt_enabled": True}
    )
    assert [p.value for p in made.get_connected_platforms()] == ["local"]
    assert made.to_dict()["reset_triggers"] == ["/new"]
    local = config.Platform("local")
    assert source(platform=local, chat_id="1").description == "CLI terminal"

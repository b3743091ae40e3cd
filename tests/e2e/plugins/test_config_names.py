"""Names in the config that nothing answers to: said by the check, by `set` and at a start, with the nearest name."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_agent.agent.personalities import NONE, known_personalities
from hermes_agent.app.manifest_cache import find_plugins
from hermes_agent.config import load
from hermes_agent.console.styled import THEMES
from hermes_agent.cron import JobStore
from hermes_agent.host import Host
from hermes_agent.plugins.config_names import find_unknown_names
from hermes_agent.plugins.config_schema import (
    BUILTIN_PERSONALITIES,
    BUILTIN_SKINS,
    find_certain_unknown_names,
)
from peers.running import free_port, running

Write = Callable[..., Path]
Start = Callable[..., Host]


@pytest.fixture(autouse=True)
def bundled(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_BUNDLED_PLUGINS")


def hermes(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "hermes_agent", *arguments], capture_output=True, text=True)


WRONG = {
    "model: {provider: opnrouter}": "model.provider: there is no model provider `opnrouter` "
    "(did you mean `openrouter`?)",
    "fallback_providers: [groq, {provider: mistal}]": "fallback_providers[1]: there is no model provider `mistal` "
    "(did you mean `mistral`?)",
    "auxiliary: {vision: {provider: opnai}}": "auxiliary.vision.provider: there is no model provider `opnai` "
    "(did you mean `openai`?)",
    "providers: {acme: {transport: antropic}}": "providers.acme.transport: there is no wire protocol `antropic`; "
    "there are anthropic_messages, chat_completions, codex_responses",
    "memory: {provider: notbook}": "memory.provider: there is no memory provider `notbook` (did you mean `notebook`?)",
    "web: {backend: searxgn}": "web.backend: there is no web provider `searxgn` (did you mean `searxng`?)",
    "image_gen: {provider: openia}": "image_gen.provider: there is no image generation provider `openia` "
    "(did you mean `openai`?)",
    "context: {engine: compresor}": "context.engine: there is no context engine `compresor` "
    "(did you mean `compressor`?)",
    "tts: {provider: edgy}": "tts.provider: there is no TTS provider `edgy` (did you mean `edge`?)",
    "cron: {provider: chronos}": "cron.provider: there is no cron scheduler `chronos`",
    "terminal: {backend: dokcer}": "terminal.backend: there is no terminal backend `dokcer` (did you mean `docker`?)",
    "security: {approval: {transport: builtn}}": "security.approval.transport: there is no approval transport `builtn` "
    "(did you mean `builtin`?)",
    "toolsets: [terminl]": "toolsets[0]: there is no toolset `terminl` (did you mean `terminal`?)",
    "agent: {disabled_toolsets: [webb]}": "agent.disabled_toolsets[0]: there is no toolset `webb` "
    "(did you mean `web`?)",
    "platform_toolsets: {slak: [web]}": "platform_toolsets.slak: there is no platform `slak` (did you mean `slack`?)",
    "platforms: {telegrm: {enabled: true}}": "platforms.telegrm: there is no platform `telegrm` "
    "(did you mean `telegram`?)",
    "people: {ann: ['telegam:1']}": "people.ann[0]: there is no platform `telegam:1` (did you mean `telegram`?)",
    "webhooks: {ci: {prompt: x, deliver: 'irk:#a'}}": "webhooks.ci.deliver: there is no platform `irk:#a` "
    "(did you mean `irc`?)",
    "plugins: {enabled: [irc-platfrm]}": "plugins.enabled[0]: unknown plugin `irc-platfrm` "
    "(did you mean `irc-platform`?)",
    "plugins: {disabled: [irc]}": "plugins.disabled[0]: irc is the folder of plugin `irc-platform`; "
    "write `irc-platform`",
    "plugins: {entries: {nobody: {trust: dev}}}": "plugins.entries.nobody: unknown plugin `nobody`: "
    "`hermes plugins list` shows those that are there",
    "plugins: {allow_tool_override: [read_fil]}": "plugins.allow_tool_override[0]: there is no tool `read_fil` "
    "(did you mean `read_file`?)",
    "model: {routes: [{model: m, vision: true}, {provider: opnai, model: m}]}": "model.routes[1].provider: there is no "
    "model provider `opnai` (did you mean `openai`?)",
    "model: {routes: [{model: m, task: conversatio}]}": "model.routes[0].task: there is no task `conversatio` "
    "(did you mean `conversation`?)",
    "model: {routes: [{model: m, person: 'ircc:*'}]}": "model.routes[0].person: there is no platform `ircc:*` "
    "(did you mean `irc`?)",
    "display: {skin: blak}": "display.skin: there is no skin `blak`; there are dark, default, "
    "high-contrast, light, none",
    "display: {skin: ligth}": "display.skin: there is no skin `ligth` (did you mean `light`?)",
    "display: {personality: kwaii}": "display.personality: there is no personality `kwaii`; there are concise, "
    "creative, default, none, off, teacher, technical",
    "{personalities: {pirate: Arr.}, display: {personality: pirat}}": "display.personality: there is no personality "
    "`pirat` (did you mean `pirate`?)",
    "hooks: {pre_tool_cal: [{command: x}]}": "hooks.pre_tool_cal: there is no hook event `pre_tool_cal` "
    "(did you mean `pre_tool_call`?)",
    "hooks: [{event: pre_tool_cal, command: x}]": "hooks[0].event: there is no hook event `pre_tool_cal` "
    "(did you mean `pre_tool_call`?)",
    "hooks: {outbound: [{url: 'https://h', events: [post_tol_call]}]}": "hooks.outbound[0].events[0]: there is no hook "
    "event `post_tol_call` (did you mean `post_tool_call`?)",
    "secrets: {sources: [vualt]}": "secrets.sources[0]: there is no secret source `vualt`",
    "platforms: {irc: {provider: irc-platfrm}}": "platforms.irc.provider: unknown plugin `irc-platfrm` "
    "(did you mean `irc-platform`?)",
    "quick_commands: {x: {type: alias, target: /bundels now}}": "quick_commands.x.target: there is no command "
    "`bundels` (did you mean `bundles`?)",
    "quick_commands: {x: {type: alias, target: my-list}, my-list: {type: alias, target: bundles}}": "quick_commands.x."
    "target: there is no command `my-list`",
    "security: {foreign_text: {tools: {wite_file: writes}}}": "security.foreign_text.tools.wite_file: there is no tool "
    "`wite_file` (did you mean `write_file`?)",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_name_that_nothing_answers_to_is_an_error_with_the_nearest_one(text: str, home: Path, start: Start) -> None:
    (finding,) = find_unknown_names(start(text))
    assert (str(finding), finding.level) == (f"{home}/config.yaml:1: {WRONG[text]}", "error")


RIGHT = (
    "{}",
    "model: {provider: auto}",
    "model: {provider: GOOGLE}",  # an alias, in capitals
    "model: {provider: mine}\nproviders: {mine: {base_url: 'http://h/v1'}}\nfallback_providers: [mine]",
    "model: {provider: '${HERMES_TEST_UNSET}'}",
    "memory: {provider: notebook}",
    "memory: {provider: builtin}",
    "web: {search_backend: ddgs, extract_backend: tavily}",
    "tts: {provider: say, providers: {say: {command: say}}}",
    "toolsets: [linear, mcp-linear, all]\nmcp_servers: {linear: {url: 'https://h/mcp', enabled: false}}",
    "platform_toolsets: {cli: [hermes-cli], cron: [web], webhook: [safe], irc: [web_tools]}",
    "platforms: {whatsapp: {enabled: false}, slack: {token: x}}",
    "people: {ann: [local, api_server, 'irc:ann']}",
    "security: {approval: {transport: Builtin}}",
    "model: {routes: [{model: m, person: 'tele*:1'}, {model: m, person: local}, {provider: groq, task: compression}]}",
    "model: {routes: [{model: m, task: job, person: 'irc:*'}]}\nauxiliary: {mine: {model: m}}",
    "display: {skin: high-contrast, personality: Teacher}",
    "display: {skin: default, personality: none}",
    "personalities: {Pirate: {prompt: Arr.}}\ndisplay: {personality: pirate, skin: ''}",
    "hooks: {post_tool_call: [{command: x}], output_spill: {}, outbound: []}",
    "platforms: {irc: {provider: irc}}",
    "plugins: {disabled: [irc-platform, web/ddgs], entries: {observability/otel: {trust: dev}}}",
    "quick_commands: {r: {type: alias, target: '/new'}, u: {command: uptime}, v: {type: alias, target: u now}}",
    "quick_commands: {u: {command: uptime, target: nothing}}",
)


@pytest.mark.parametrize("text", RIGHT)
def test_a_name_that_something_answers_to_is_taken(text: str, start: Start) -> None:
    assert find_unknown_names(start(text)) == []


@pytest.mark.parametrize("text", [*WRONG, *RIGHT])
def test_what_is_decided_without_a_host_is_what_a_host_says(text: str, home: Path, start: Start) -> None:
    host = start(text)
    certain = find_certain_unknown_names(host.config, find_plugins(home))
    assert certain is None or certain == find_unknown_names(host)


@pytest.mark.parametrize(
    ("text", "finds"),
    [
        ("model: {provider: groq}\nmemory: {provider: notebook}\nterminal: {backend: ssh}\n", ""),
        (
            "platforms: {telegram: {enabled: true}}\nplatform_toolsets: {cli: [mcp-x]}\nmcp_servers: {x: {command: x}}",
            "",
        ),
        ("plugins: {enabled: [lab], entries: {nobody: {trust: dev}}}\n", "plugins.entries.nobody"),
        ("network: {hosts: ['group:pyton']}", None),
        ("security: {website_blocklist: {enabled: true, domains: [a]}}", None),
        ("toolsets: [web]", None),
    ],
)
def test_a_host_is_asked_only_where_plugins_register_what_is_named(
    text: str, finds: str | None, home: Path, start: Start, write_plugin: Write
) -> None:
    write_plugin("lab")
    (home / "config.yaml").write_text(text)
    found = find_certain_unknown_names(load(home), find_plugins(home))
    assert finds == (None if found is None else " ".join(finding.key_path for finding in found))


@pytest.mark.parametrize("words", [["config", "check"], ["config", "set", "model.provider", "groq"], ["--help"]])
def test_a_command_that_needs_no_host_imports_none(words: list[str], home: Path, write_plugin: Write) -> None:
    write_plugin("lab")
    (home / "config.yaml").write_text("plugins: {enabled: [lab]}\nmodel: {provider: openai}\n")
    code = "import sys\nfrom hermes_agent.app.main import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += (
        "print(sorted({'asyncio', 'hermes_agent.host', 'hermes_agent.agent', 'hermes_agent.tools'} & {*sys.modules}))"
    )
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith("[]\n") and ran.stderr == ""


def test_what_plugins_register_at_run_time_counts(write_plugin: Write, start: Start) -> None:
    write_plugin(
        "home-lab",
        """
        def register(ctx):
            ctx.register_tool("lamp", "lights", {"name": "lamp"}, lambda args, **kw: "{}")
            ctx.register_platform("pager", "Pager", lambda config: None, lambda: True)
            ctx.register_approval_transport("phone", lambda request: request.respond("deny"))
        """,
    )
    write_plugin("cloudy", "def register(ctx): pass\n", "name: cloudy\nkind: model-provider\n")
    write_plugin("buzz", "def register(ctx): pass\n", "name: buzz-platform\nkind: platform\n")
    host = start(
        """
        plugins: {enabled: [home-lab], allow_tool_override: [lamp]}
        toolsets: [lights]
        security: {approval: {transport: phone}}
        platforms: {pager: {enabled: true}, buzz: {enabled: true}}
        """
    )
    assert find_unknown_names(host) == []
    assert find_unknown_names(host, {"model": {"provider": "cloudy"}}) == [], "it is loaded when it is named"
    (finding,) = find_unknown_names(host, {"web": {"backend": "buzz-platform"}})
    assert finding.message.endswith("plugin `buzz-platform` does not run: run `hermes plugins enable buzz-platform` "
                                    "to activate")  # fmt: skip


def test_skills_that_are_disabled_or_called_by_an_alias(home: Path, start: Start) -> None:
    folder = home / "skills" / "mine" / "baking"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: bake-bread\ndescription: d\n---\ntext\n")
    right = "skills: {disabled: [bake-bread, baking], platform_disabled: {cli: [mine/baking]}}\n"
    assert find_unknown_names(start(right)) == []
    assert find_unknown_names(start("quick_commands: {b: {type: alias, target: bake-bread}}")) == []
    found = find_unknown_names(start("skills: {disabled: [bakeing], platform_disabled: {cli: [cooking]}}"))
    assert [(finding.key_path, finding.level) for finding in found] == [
        ("skills.platform_disabled.cli[0]", "warning"),
        ("skills.disabled[0]", "warning"),
    ]
    assert found[1].message.endswith("there is no skill `bakeing` (did you mean `baking`?)")


def test_a_skin_in_a_file_is_there(home: Path, start: Start) -> None:
    (home / "skins").mkdir()
    (home / "skins" / "night.yaml").write_text("extends: light\n")
    (home / "skins" / "gold.yaml").write_text("name: golden\n")
    assert find_unknown_names(start("display: {skin: night}")) == []
    assert find_unknown_names(start("display: {skin: golden}")) == []
    (finding,) = find_unknown_names(start("display: {skin: nihgt}"))
    assert finding.message.endswith("there is no skin `nihgt` (did you mean `night`?)")


@pytest.mark.parametrize(("key", "name"), [("skin", "charizard"), ("personality", "kawaii")])
def test_a_look_of_upstream_is_a_warning(key: str, name: str, start: Start) -> None:
    (finding,) = find_unknown_names(start(f"display: {{{key}: {name}}}"))
    assert finding.level == "warning"
    assert finding.message.endswith(f"`{name}` is a {key} of upstream's program, which is not here: no effect")


def test_the_names_that_need_no_file_are_those_of_console_and_agent() -> None:
    assert {*BUILTIN_SKINS} == {*THEMES, "default"}
    assert {*BUILTIN_PERSONALITIES, ""} == {*known_personalities({}), *NONE}


def test_a_name_that_an_installed_plugin_may_bring_is_a_warning_until_it_runs(
    write_plugin: Write, start: Start
) -> None:
    write_plugin("lab")
    host = start("toolsets: [lights]\nplugins: {disabled: [lights]}\ncontext: {engine: compresor}\n")
    assert sorted((f.key_path, f.level) for f in find_unknown_names(host)) == [
        ("context.engine", "error"),
        ("plugins.disabled[0]", "error"),
        ("toolsets[0]", "warning"),
    ]


def test_a_name_that_a_broken_plugin_may_have_is_a_warning(write_plugin: Write, start: Start) -> None:
    write_plugin("lab", "import nothing_of_that_name\ndef register(ctx): pass\n")
    (finding,) = find_unknown_names(start("plugins: {enabled: [lab]}\ntoolsets: [lights]\n"))
    assert finding.level == "warning"
    assert finding.message.endswith("toolset `lights`; it may be of plugin `lab`, which did not load")


def test_a_name_that_a_plugin_without_its_key_may_have_is_a_warning(
    write_plugin: Write, start: Start, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB_TOKEN", raising=False)
    write_plugin("lab")
    manifest = home / "plugins" / "lab" / "plugin.yaml"
    manifest.write_text(f"{manifest.read_text()}\nrequires_env: [LAB_TOKEN]\n")
    (finding,) = find_unknown_names(start("plugins: {enabled: [lab]}\ntoolsets: [lights]\n"))
    assert finding.level == "warning" and "plugin `lab`, which did not load" in finding.message


def test_a_file_of_another_home_is_checked_against_what_is_installed_here(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    text = "model: {provider: opnrouter}\nproviders: {own: {base_url: 'http://h/v1'}}\nfallback_providers: [own]\n"
    file.write_text(f"{text}toolsets: [lights, mcp-lab]\nmcp_servers: {{lab: {{command: x}}}}\n")
    (home / "config.yaml").write_text("model: {provider: opnai}\n")
    ran = hermes("config", "check", str(file), "--json")
    said = [(f["file"], f["line"], f["key_path"], f["level"]) for f in json.loads(ran.stdout)["findings"]]
    assert said == [(str(file), 1, "model.provider", "error"), (str(file), 4, "toolsets[0]", "warning")]
    assert ran.returncode == 78

    ran = hermes("config", "check", str(home / "config.yaml"))
    assert (ran.returncode, "no model provider `opnai`" in ran.stderr + ran.stdout) == (78, True)
    file.write_text("display: {skin: gold, personality: gruff}\n")
    said = [
        (f["key_path"], f["level"])
        for f in json.loads(hermes("config", "check", str(file), "--json").stdout)["findings"]
    ]
    assert said == [("display.personality", "error"), ("display.skin", "warning")]
    file.write_text("toolsets: [lights]\n")
    ran = hermes("config", "check", str(file), "--label", "settings")
    assert ran.returncode == 0 and ran.stdout.startswith("settings: toolsets[0]: there is no toolset `lights`")
    assert "a plugin that is not installed here may bring it" in ran.stdout


def test_a_check_of_a_file_makes_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "none"))
    (tmp_path / "other.yaml").write_text("model: {provider: opnrouter}\n")
    ran = hermes("config", "check", str(tmp_path / "other.yaml"))
    assert (ran.returncode, "did you mean `openrouter`?" in ran.stderr + ran.stdout) == (78, True)
    assert not (tmp_path / "none").exists()


def test_the_platform_of_a_scheduled_job_is_checked_when_it_is_made_and_by_doctor(
    home: Path, write_plugin: Write, start: Start
) -> None:
    refused = hermes("cron", "add", "every day at 9:00", "hello", "--deliver", "local, irk:#lab")
    assert refused.returncode == 1
    assert "deliver `irk:#lab`: there is no platform `irk` (did you mean `irc`?)" in refused.stderr
    assert (
        hermes("cron", "add", "every day at 9:00", "hello", "--deliver", "irc:#lab", "--name", "news").returncode == 0
    )
    edited = hermes("cron", "edit", "news", "--deliver", "telegam:1")
    assert edited.returncode == 1 and "did you mean `telegram`?" in edited.stderr

    host = start()
    call = {"action": "update", "job_id": "news", "deliver": "irk:#lab"}
    answer = json.loads(host.tools.get("cronjob").handler(call))
    assert answer == {"error": "deliver `irk:#lab`: there is no platform `irk` (did you mean `irc`?)"}
    assert "error" not in json.loads(host.tools.get("cronjob").handler(call | {"deliver": "irc:#all"}))

    with contextlib.closing(JobStore(home / "state.db")) as store:
        store.put(replace(store.find("news"), deliver="gone:#lab, irc"))
    doctor = json.loads(hermes("doctor", "--offline", "--json").stdout)
    said = [line["text"] for line in doctor if line["subject"] == "cron"]
    assert len(said) == 1 and "delivers to `gone:#lab`: there is no platform `gone`" in said[0]


def test_set_refuses_such_a_name_and_check_names_all_of_them(home: Path) -> None:
    ran = hermes("config", "set", "model.provider", "opnrouter")
    assert (ran.returncode, ran.stdout) == (78, "")
    assert "there is no model provider `opnrouter` (did you mean `openrouter`?)" in ran.stderr
    assert not (home / "config.yaml").exists()

    (home / "config.yaml").write_text("model: {provider: opnrouter}\nplugins:\n  disabled: [nobody]\n")
    ran = hermes("config", "check", "--json")
    said = [(f["line"], f["key_path"], f["level"]) for f in json.loads(ran.stdout)["findings"]]
    assert (ran.returncode, said) == (78, [(1, "model.provider", "error"), (3, "plugins.disabled[0]", "error")])

    ran = hermes("tools", "list")
    assert ran.returncode == 0, "such a home starts all the same"
    assert "there is no model provider `opnrouter`" in (home / "logs" / "agent.log").read_text()


def test_a_start_and_the_doctor_say_all_that_a_check_finds(home: Path, write_plugin: Write) -> None:
    write_plugin("lab")
    (home / "config.yaml").write_text(
        "model: {provider: local}\nplugins: {enabled: [lab, missing], disabled: [no-one]}\ntoolsets: [lightz]\n"
        "display: {skin: blak}\nhooks: {pre_tool_cal: [{command: x}]}\nmemory: {provider: notbook}\n"
    )
    wrong = ["missing", "no-one", "lightz", "blak", "pre_tool_cal", "notbook"]
    checked = hermes("config", "check")
    assert checked.returncode == 78 and [name for name in wrong if f"`{name}`" not in checked.stdout] == []
    asked = hermes("-z", "/tools")
    assert asked.returncode == 0 and [name for name in wrong if asked.stderr.count(f"`{name}`") != 1] == []
    doctor = json.loads(hermes("doctor", "--offline", "--json").stdout)
    config = [line for line in doctor if line["subject"] == "config"]
    assert {line["level"] for line in config} == {"wrong"} and len(config) == 4
    (home / "logs" / "agent.log").unlink()
    port = free_port()
    environ = {"API_SERVER_PORT": str(port)}
    command = [sys.executable, "-m", "hermes_agent", "gateway", "run"]
    with running(command, host="127.0.0.1", port=port, path="/health", environ=environ):
        log = (home / "logs" / "agent.log").read_text()
    assert [name for name in wrong if f"`{name}`" not in log] == []
    (home / "config.yaml").write_text("plugins: {enabled: [lab]}\n")
    doctor = json.loads(hermes("doctor", "--offline", "--json").stdout)
    (line,) = [line for line in doctor if line["subject"] == "config"]
    assert (line["level"], line["text"]) == ("ok", f"{home} is valid")


def test_an_entry_of_the_table_of_hosts_that_names_nothing_is_refused_by_set_and_check(home: Path) -> None:
    ran = hermes("config", "set", "network.hosts", '["group:pyton"]')
    assert (ran.returncode, ran.stdout) == (78, "")
    assert "network.hosts: 'group:pyton' is not a group; the groups are python" in ran.stderr
    for key, value in (("network.hosts", "5"), ("network", "7"), ("network.deny", "[1]")):
        ran = hermes("config", "set", key, value)
        assert ran.returncode == 78 and "Traceback" not in ran.stderr
    assert hermes("config", "set", "network.hosts", '["group:python", "example.org"]').returncode == 0

    (home / "config.yaml").write_text("network: {hosts: ['group:pyton']}\n")
    ran = hermes("config", "check", "--json")
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["valid"]) == (78, False)
    assert "is not a group" in report["findings"][0]["message"]

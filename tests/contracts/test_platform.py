"""Chat platforms (docs/plugins/kinds/platform.md): the suite over every implementation, registering, enabling."""

from __future__ import annotations

import html
import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.platform_suite import Bench, PlatformSuite, drive
from contracts.test_pages import PAGES, outline
from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.config import BUILTIN_PLATFORMS, Platform, PlatformConfig, PlatformEntry, cron_target
from hermes_agent.adapters.events import MessageEvent
from hermes_agent.adapters.registry import (
    PLATFORM,
    SLACK_ACTION,
    PlatformRegistry,
    gateway_config,
)
from hermes_agent.app.main import main
from hermes_agent.host import Host
from hermes_agent.plugins.context import PluginContext

ROOT = Path(__file__).resolve().parents[2]
GUIDES = Path(os.environ.get("HERMES_GUIDES") or ROOT.parent / "shared" / "guides")
Start = Callable[..., Host]


def registry_with(name: str, factory: Callable[..., Any], **fields: Any) -> PlatformRegistry:
    registry = PlatformRegistry()
    registry.register(
        PlatformEntry(**{"name": name, "label": name, "adapter_factory": factory, "check_fn": lambda: True, **fields})
    )
    return registry


class Memory(BasePlatformAdapter):
    """Keeps what is sent."""

    def __init__(self, config: PlatformConfig, platform: Platform | None = None) -> None:
        super().__init__(config, platform)
        self.kept: list[tuple[str, str]] = []

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        self._mark_disconnected()

    async def send(self, chat_id: str, content: str, reply_to: str | None = None, metadata: Any = None) -> Any:
        self.kept.append((chat_id, content))
        return await self.sending(content)

    async def sending(self, content: str) -> Any:
        from hermes_agent.adapters.events import SendResult

        return SendResult(True, message_id=str(len(self.kept)))


class Guided(BasePlatformAdapter):
    """In the guide's short form: no `is_reconnect`, two arguments to send, no `get_chat_info`, no platform."""

    async def connect(self):  # type: ignore[no-untyped-def,override]
        self.kept: list[tuple[str, str]] = []

    async def send(self, chat_id, text):  # type: ignore[no-untyped-def,override]
        self.kept.append((chat_id, text))

    async def disconnect(self):  # type: ignore[no-untyped-def]
        self._mark_disconnected()


class MemoryBench:
    """An adapter whose other end is a list."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    async def arrive(self) -> None: ...

    async def leave(self) -> None: ...

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        source = self.adapter.build_source(chat_id=chat_id, user_id=user_id)
        await self.adapter.handle_message(MessageEvent(text, source=source, message_id="m1"))

    def sent(self) -> list[tuple[str, str]]:
        kept: list[tuple[str, str]] = self.adapter.kept
        return kept


class ExampleBench(MemoryBench):
    """The example plugin's adapter."""

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        await self.adapter.receive(chat_id, user_id, text)

    def sent(self) -> list[tuple[str, str]]:
        return [(chat, re.sub(r" \(\d+/\d+\)$", "", text)) for chat, text in self.adapter.sent]


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_GATEWAY_LOCK_DIR", str(tmp_path / "locks"))


class TestInMemory(PlatformSuite):
    @pytest.fixture
    def bench(self) -> Bench:
        registry = registry_with("memorychat", lambda config: Memory(config, Platform("memorychat")))
        return MemoryBench(registry.create_adapter("memorychat", PlatformConfig(enabled=True)))


class TestGuideStyle(PlatformSuite):
    @pytest.fixture
    def bench(self) -> Bench:
        registry = registry_with("guidechat", lambda cfg: Guided(cfg))
        return MemoryBench(registry.create_adapter("guidechat", PlatformConfig(enabled=True)))


class TestExamplePlugin(PlatformSuite):
    @pytest.fixture
    def bench(self, start: Start, locks: None, monkeypatch: pytest.MonkeyPatch) -> Bench:
        monkeypatch.setenv("EXAMPLE_CHAT_TOKEN", "t0ken")
        host = start("platform")
        settings = gateway_config(host.config.values, host.platforms).platforms[Platform("example")]
        return ExampleBench(host.platforms.create_adapter("example", settings))


# -- the guide ------------------------------------------------------------------------------------------------------


def from_the_guide() -> tuple[str, str]:
    """Return the guide's adapter and its manifest; their indentation, which the copy of the page lost, is put back."""
    page = GUIDES / "build-a-plugin.newest.ko.txt"
    if not page.is_file():
        pytest.skip(f"the guides are not at hand: there is no {page} (HERMES_GUIDES names their folder)")
    lines = html.unescape(page.read_text(encoding="utf-8")).splitlines()
    start = lines.index("# plugins/platforms/myplatform/adapter.py")
    middle = lines.index("# plugins/platforms/myplatform/plugin.yaml")
    code, depth = [], 0
    for line in lines[start : middle - 1]:
        if line.startswith(("class ", "def ")):
            code.append(line)
            depth = 1
        elif line.startswith("async def "):
            code.append(f"    {line}")
        elif not line or line.startswith(("from ", "# plugins/")):
            code.append(line)
        else:
            code.append("    " * (depth + (line == "return None")) + line)
    manifest, in_list = [], False
    for line in lines[middle : lines.index("", middle)]:
        manifest.append(f"    {line}" if in_list and re.match(r"(description|password):", line) else line)
        in_list = in_list or line == "requires_env:"
        if line == "optional_env:":
            in_list = True
        manifest[-1] = f"  {line}" if line.startswith("- ") else manifest[-1]
    return "\n".join(code) + "\n", "\n".join(manifest) + "\n"


def test_the_guide_s_platform_loads_is_enabled_by_its_variable_and_works(
    home: Path, served: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, manifest = from_the_guide()
    assert "adapter_factory=lambda cfg: MyPlatformAdapter(cfg)," in code
    place = home / "plugins" / "platforms" / "myplatform"
    place.mkdir(parents=True)
    (place / "adapter.py").write_text(code)
    (place / "__init__.py").write_text("from .adapter import register\n")
    (place / "plugin.yaml").write_text(manifest)
    (home / "config.yaml").write_text("plugins: {enabled: [platforms/myplatform]}\n")
    monkeypatch.setenv("MYPLATFORM_TOKEN", "guided-token")
    monkeypatch.setenv("MYPLATFORM_HOME_CHANNEL", "C1")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()

    (record,) = host.plugins.records
    assert (record.error, record.providers_registered) == (None, [(PLATFORM, "myplatform")])
    entry = host.platforms.get("myplatform")
    assert entry is not None
    assert (entry.source, entry.plugin_name, entry.emoji) == ("plugin", "myplatform-platform", "💬")
    settings = gateway_config(host.config.values, host.platforms).platforms[Platform("myplatform")]
    assert (settings.enabled, settings.token, settings.extra) == (True, None, {"token": "guided-token"})
    assert cron_target(entry, os.environ) == ("C1", None)
    adapter = host.platforms.create_adapter("myplatform", settings)

    async def answer(event: MessageEvent) -> str:
        return "hello"

    async def steps(adapter: Any) -> Any:
        await MemoryBench(adapter).write("room", "ann", "hi")

    drive(MemoryBench(adapter), answer, steps)
    assert (adapter.platform, adapter.name) == (Platform("myplatform"), "Myplatform")


# -- registering ----------------------------------------------------------------------------------------------------


def write(home: Path, name: str, body: str) -> None:
    place = home / "plugins" / name
    place.mkdir(parents=True)
    (place / "plugin.yaml").write_text(f"name: {name}\nkind: platform\n")
    (place / "__init__.py").write_text(body)


def run(home: Path, *names: str, config: str = "") -> Host:
    (home / "config.yaml").write_text(f"plugins:\n  enabled: [{', '.join(names)}]\n{config}")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()
    return host


BUNDLED_TELEGRAM = "telegram-platform"
IRC = """
def register(ctx):
    ctx.register_platform("irc", "IRC", lambda config: None, lambda: True{more})
"""


def test_the_example_is_registered_counted_and_logged(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    host = start("platform")

    (record,) = host.plugins.records
    assert record.error is None
    assert record.providers_registered == [(PLATFORM, "example"), (SLACK_ACTION, "example_button")]
    assert host.platforms.owner("example") == "example-platform"
    assert "Plugin 'example-platform' registered platform: example" in caplog.messages
    assert not [r for r in caplog.records if r.name.startswith("hermes_agent") and r.levelno >= logging.WARNING]
    assert all(hasattr(PluginContext, kind.ctx_method) for kind in (PLATFORM, SLACK_ACTION))


def test_a_keyword_that_is_no_field_is_a_type_error(home: Path, served: None) -> None:
    write(home, "irc", IRC.format(more=", colour='red'"))

    (record,) = run(home, "irc").plugins.records

    assert record.status == "failed"
    assert "unexpected keyword argument 'colour'" in str(record.error)


@pytest.mark.parametrize("name", ["", "IRC", " irc"])
def test_a_name_that_is_no_plain_word_fails_the_plugin(home: Path, served: None, name: str) -> None:
    write(home, "irc", IRC.format(more="").replace('"irc"', repr(name)))

    host = run(home, "irc")

    assert host.plugins.records[0].error == f"ValueError: invalid name of a platform: {name!r}: expected lower case"
    assert host.platforms.all_entries() == []


def test_of_two_plugins_with_one_name_the_second_goes_without_and_the_check_names_both(
    home: Path, served: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        write(home, name, IRC.format(more=""))

    host = run(home, "one", "two")

    second = host.plugins.records[1]
    assert (second.enabled, second.providers_registered) == (True, [])
    assert [(p.kind, p.name, p.owner) for p in second.problems] == [("platform", "irc", "one")]
    assert host.platforms.owner("irc") == "one"
    assert main(["plugins", "check", str(home / "plugins"), "--out", str(tmp_path / "out.json")]) == 1
    document = json.loads((tmp_path / "out.json").read_text())
    assert [(c["kind"], c["name"], c["owners"]) for c in document["conflicts"]] == [("platform", "irc", ["one", "two"])]
    assert [p["platforms"] for p in document["plugins"]] == [["irc"], []]
    assert "platform:irc" in document["plugins"][0]["providers"]


def test_a_name_that_the_host_serves_is_the_agent_s_unless_the_operator_allows_it(home: Path, served: None) -> None:
    write(home, "hook", IRC.format(more="").replace('"irc"', '"webhook"'))

    refused = run(home, "hook").plugins.find("hook")
    allowed = run(home, "hook", config="  entries: {hook: {allow_tool_override: true}}\n").plugins.find("hook")

    assert refused is not None and allowed is not None
    assert [(p.name, p.text) for p in refused.problems] == [("webhook", "platform `webhook` belongs to the agent")]
    assert allowed.providers_registered == [(PLATFORM, "webhook")]


@pytest.mark.parametrize(
    ("config", "owner"),
    [
        ("", "tg"),
        ("platforms: {telegram: {enabled: true}}\n", BUNDLED_TELEGRAM),
        ("platforms: {telegram: {enabled: true, provider: tg}}\n", "tg"),
        ("platforms: {telegram: {provider: telegram}}\n", BUNDLED_TELEGRAM),
    ],
)
def test_a_bundled_platform_gives_its_name_to_a_plugin_unless_it_is_enabled_or_selected(
    home: Path, served: None, monkeypatch: pytest.MonkeyPatch, config: str, owner: str
) -> None:
    monkeypatch.delenv("HERMES_BUNDLED_PLUGINS", raising=False)
    write(home, "tg", IRC.format(more="").replace('"irc"', '"telegram"'))

    host = run(home, "tg", config=config)

    record = host.plugins.find("tg")
    assert record is not None
    assert host.platforms.owner("telegram") == owner
    assert record.providers_registered == ([(PLATFORM, "telegram")] if owner == "tg" else [])
    if owner != "tg":
        assert record.problems[0].text.startswith("platform `telegram` belongs to plugin `telegram")
        assert "platforms.telegram.provider" in record.problems[0].remedy


def test_a_platform_plugin_may_use_its_name_while_it_is_imported(home: Path, served: None) -> None:
    body = "from gateway.config import Platform\nMINE = Platform('newchat')\n"
    write(home, "newchat", body + IRC.format(more="").replace('"irc"', '"newchat"'))

    record = run(home, "newchat").plugins.find("newchat")

    assert record is not None and record.enabled, record and record.error


def test_settings_of_a_block_at_the_top_level_reach_the_platform(home: Path, served: None) -> None:
    write(home, "irc2", IRC.format(more="").replace('"irc"', '"irc2"'))
    top = "irc2: {require_mention: true, allow_from: [ann], unknown: 1}\nplatforms: {irc2: {allow_from: [bob]}}\n"

    host = run(home, "irc2", config=top)

    extra = gateway_config(host.config.values, host.platforms).platforms[Platform("irc2")].extra
    assert extra == {"require_mention": True, "allow_from": ["bob"]}


def test_what_a_plugin_registered_before_it_failed_is_taken_back(home: Path, served: None) -> None:
    body = (
        IRC.format(more="").replace("irc", "rolledback")
        + "    ctx.register_slack_action_handler('b', print)\n    raise RuntimeError('half-way')\n"
    )
    write(home, "half", body)

    host = run(home, "half")

    assert host.plugins.records[0].error == "RuntimeError: half-way"
    assert (host.platforms.all_entries(), host.slack_actions.items()) == ([], [])
    with pytest.raises(ValueError, match="'rolledback' is not a valid Platform"):
        Platform("rolledback")


def test_the_platforms_of_a_plugin_are_replaced_in_one_step_by_those_of_its_new_load() -> None:
    registry = registry_with("old", lambda config: None)
    fork = registry.fork(without="")
    fork.register(PlatformEntry("new", "New", lambda config: None, lambda: True))

    assert Platform("new").value == "new"
    assert [entry.name for entry in registry.all_entries()] == ["old"]
    registry.adopt("", fork)
    assert [entry.name for entry in registry.all_entries()] == ["new"]
    assert registry.remove_owner("") == ["new"]
    assert registry.all_entries() == []


def test_a_direct_registration_belongs_to_the_plugin_and_takes_nobody_s_name(
    home: Path, served: None, caplog: pytest.LogCaptureFixture
) -> None:
    direct = (
        "from gateway.platform_registry import PlatformEntry, platform_registry\n"
        "def register(ctx):\n"
        "    for name in ('irc', 'mine'):\n"
        "        platform_registry.register(PlatformEntry(name, name, lambda config: None, lambda: True))\n"
    )
    write(home, "a", IRC.format(more=""))
    write(home, "b", direct)

    host = run(home, "a", "b")

    assert [r.providers_registered for r in host.plugins.records] == [[(PLATFORM, "irc")], [(PLATFORM, "mine")]]
    assert (host.platforms.owner("irc"), host.platforms.owner("mine")) == ("a", "b")
    assert any(
        m.startswith("Platform 'irc' was not registered: platform `irc` belongs to plugin `a`") for m in caplog.messages
    )


def test_slack_handlers_are_kept_and_what_is_none_is_refused(home: Path, served: None) -> None:
    body = (
        "import re\n"
        "async def go(ack, body, action): pass\n"
        "def register(ctx):\n"
        "    for wrong in (None, ' ', {}, 5):\n"
        "        try:\n            ctx.register_slack_action_handler(wrong, go)\n"
        "        except ValueError: continue\n"
        "        raise AssertionError(wrong)\n"
        "    try:\n        ctx.register_slack_action_handler('x', None)\n"
        "    except ValueError: pass\n"
        "    for action_id in ('b', re.compile('b.*'), {'block_id': 'x', 'action_id': 'y'}, 'b'):\n"
        "        ctx.register_slack_action_handler(action_id, go)\n"
    )
    write(home, "buttons", body)

    host = run(home, "buttons")

    (record,) = host.plugins.records
    assert record.error is None
    assert [name for _, name in record.providers_registered] == ["b", "b.*", "{'block_id': 'x', 'action_id': 'y'}"]
    assert [(a, plugin) for a, _, plugin in host.plugins._slack_action_handlers] == [
        ("b", "buttons"),
        (re.compile("b.*"), "buttons"),
        ({"block_id": "x", "action_id": "y"}, "buttons"),
    ]


def test_a_platform_that_comes_with_the_agent_is_loaded_when_somebody_asks_for_it(
    home: Path, served: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", str(tmp_path / "bundled"))
    for folder, name, body in (
        ("telegram", "telegram-platform", IRC.format(more="").replace("irc", "telegram")),
        ("broken", "broken", "def register(ctx):\n    raise RuntimeError('no')\n"),
    ):
        place = tmp_path / "bundled" / "platforms" / folder
        place.mkdir(parents=True)
        (place / "plugin.yaml").write_text(f"name: {name}\nkind: platform\n")
        (place / "__init__.py").write_text(body)

    host = run(home)
    before = {r.manifest.name: (r.status, r.deferred, r.module) for r in host.plugins.records}
    status = host.plugins.status_text()

    assert before == {"broken": ("enabled", True, None), "telegram-platform": ("enabled", True, None)}
    assert (host.platforms.is_registered("telegram"), host.platforms.loaded_entries()) == (True, [])
    assert "(+2 bundled" in status
    assert host.platforms.get("telegram") is not None
    assert [e.name for e in host.platforms.all_entries()] == ["telegram"]
    after = {r.manifest.name: (r.status, r.error, r.providers_registered) for r in host.plugins.records}
    assert after == {
        "broken": ("failed", "RuntimeError: no", []),
        "telegram-platform": ("enabled", None, [(PLATFORM, "telegram")]),
    }
    assert main(["plugins", "check"]) == 1
    assert "plugin `broken` failed to load: RuntimeError: no" in capsys.readouterr().err


# -- selecting ------------------------------------------------------------------------------------------------------


def test_a_platform_whose_check_raises_is_listed_as_unavailable_with_the_reason(
    home: Path, served: None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    write(home, "irc", IRC.format(more="").replace("lambda: True", "lambda: 1 / 0"))

    host = run(home, "irc")

    assert host.platforms.availability("irc") == (False, "its check failed: ZeroDivisionError: division by zero", True)
    assert host.platforms.create_adapter("irc", PlatformConfig()) is None
    assert (
        "Platform 'irc' requirements not met (its check failed: ZeroDivisionError: division by zero)" in caplog.messages
    )
    assert (
        "      platform `irc`: registered, not enabled (its check failed: ZeroDivisionError: division by zero)"
    ) in host.plugins.status_text()
    assert main(["plugins", "check", str(home / "plugins"), "--json"]) == 0
    (warning,) = [w for w in json.loads(capsys.readouterr().out)["warnings"] if "platform" in w]
    assert warning == (
        "plugin `irc`: platform `irc` is never available: its check failed: ZeroDivisionError: division by zero"
    )


def test_the_list_names_the_platforms_of_the_last_load(
    home: Path, served: None, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, "irc", IRC.format(more=""))
    run(home, "irc")

    assert main(["plugins", "list", "--json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["status"], row["platforms"], row["reason"]) == ("irc", "enabled", ["irc"], "")


def enabled(values: dict[str, Any], **fields: Any) -> tuple[bool, PlatformConfig | None]:
    registry = registry_with("irc", lambda config: None, **fields)
    config = gateway_config(values, registry).platforms.get(Platform("irc"))
    return (config is not None and config.enabled), config


def test_config_and_environment_enable_a_platform_as_the_contract_says() -> None:
    seed = {"token": "t", "home_channel": {"chat_id": 5, "name": "Ops", "thread_id": 7}}

    def wants_token(config: PlatformConfig) -> bool:
        assert config.enabled
        return bool(config.extra.get("token"))

    def fails(config: PlatformConfig) -> bool:
        raise RuntimeError("no")

    assert enabled({})[0] is True
    assert enabled({}, check_fn=lambda: False) == (False, None)
    assert enabled({"platforms": {"irc": {"enabled": False}}}, env_enablement_fn=lambda: seed)[0] is False
    assert enabled({}, is_connected=wants_token) == (False, None)
    assert enabled({}, is_connected=fails, env_enablement_fn=lambda: seed)[0] is False
    assert enabled({"platforms": {"irc": {"enabled": True}}}, check_fn=lambda: False)[0] is True
    assert enabled({"platforms": {"irc": {"token": "x"}}}, is_connected=lambda config: config.token == "x")[0] is True

    on, config = enabled({}, is_connected=wants_token, env_enablement_fn=lambda: seed)
    assert on
    assert config is not None
    assert (config.token, config.extra) == (None, {"token": "t"})
    assert config.home_channel is not None
    assert config.home_channel.to_dict() == {"platform": "irc", "chat_id": "5", "name": "Ops", "thread_id": "7"}
    on, config = enabled(
        {
            "gateway": {"platforms": {"irc": {"enabled": True, "server": "a", "port": 1}}},
            "platforms": {"irc": {"server": "b"}},
        }
    )
    assert config is not None
    assert (on, config.extra) == (True, {"server": "b", "port": 1})


def test_a_block_of_its_own_is_translated_by_the_platform(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def translate(whole: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        seen.append((whole, own))
        return {"rooms": own["channels"]}

    block = {"enabled": True, "nick": "h", "extra": {}, "channel_overrides": {}}  # the last two are the schema's
    values = {"irc": {"channels": ["#a"]}, "platforms": {"irc": block}}
    _, config = enabled(values, apply_yaml_config_fn=translate)
    _, broken = enabled(values, apply_yaml_config_fn=lambda whole, own: 5)

    assert seen == [(values, {"enabled": True, "nick": "h", "channels": ["#a"]})]
    assert config is not None
    assert config.extra == {"nick": "h", "rooms": ["#a"]}
    assert broken is not None
    assert broken.extra == {"nick": "h"}
    assert "Platform 'irc': apply_yaml_config_fn returned int: expected a dict" in caplog.messages


def test_a_platform_that_nobody_registered_is_left_out_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    values = {"platforms": {"nowhere": {"enabled": True}, "slack": {"enabled": True, "token": "t"}}}

    config = gateway_config(values, PlatformRegistry())

    assert config.get_connected_platforms() == [Platform.SLACK]
    assert "platforms.nowhere: no plugin registered a platform of that name" in caplog.messages


# -- the registry ---------------------------------------------------------------------------------------------------


def test_an_adapter_that_cannot_be_made_is_none_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    def broken(config: Any) -> Any:
        raise RuntimeError("no socket")

    def made(**fields: Any) -> Any:
        return registry_with("irc", fields.pop("factory", lambda config: "made"), **fields).create_adapter("irc", None)

    assert PlatformRegistry().create_adapter("irc", None) is None
    assert made() == "made"
    assert made(check_fn=lambda: False, install_hint="pip install irc") is None
    assert made(validate_config=lambda config: False) is None
    assert made(validate_config=lambda config: config.token) is None
    assert made(factory=broken) is None
    assert made(factory=lambda config: None) is None
    assert caplog.messages == [
        "Platform 'irc' requirements not met (pip install irc)",
        "Platform 'irc' config validation failed",
        "Platform 'irc' config validation error: 'NoneType' object has no attribute 'token'",
        "Failed to create adapter for platform 'irc': no socket",
    ]


def test_a_deferred_platform_is_loaded_when_somebody_asks_and_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = PlatformRegistry()
    calls: list[str] = []

    def load() -> None:
        calls.append("load")
        registry.register(PlatformEntry("irc", "IRC", lambda config: "made", lambda: True))

    def broken() -> None:
        calls.append("broken")
        raise ImportError("no irc here")

    registry.register_deferred("irc", load)
    registry.register_deferred("bad", broken)

    assert (registry.is_registered("irc"), registry.is_registered("none"), calls) == (True, False, [])
    assert Platform("irc").value == "irc"
    assert registry.create_adapter("irc", None) == "made"
    assert [entry.name for entry in registry.plugin_entries()] == ["irc"]
    assert (registry.get("bad"), registry.get("bad"), calls) == (None, None, ["load", "broken"])
    assert "Deferred load of platform 'bad' failed: no irc here" in caplog.messages
    assert (registry.unregister("irc"), registry.unregister("irc")) == (True, False)


def test_the_last_registration_of_one_owner_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    registry = registry_with("irc", lambda config: 1)
    registry.register(PlatformEntry("irc", "IRC 2", lambda config: 2, lambda: True, source="bundled"))

    assert registry.create_adapter("irc", None) == 2
    assert "Platform 'irc' re-registered (was plugin, now bundled)" in caplog.messages


def test_a_platform_is_one_object_a_name() -> None:
    registry = registry_with("irc", lambda config: None)

    assert Platform("irc") is Platform("IRC ") is Platform(Platform("irc"))
    assert (Platform("irc").name, Platform("irc").value) == ("IRC", "irc")
    assert Platform("irc") not in list(Platform)
    assert Platform("telegram") is Platform.TELEGRAM
    assert len(BUILTIN_PLATFORMS) == 24
    with pytest.raises(ValueError, match="'unheard-of' is not a valid Platform"):
        Platform("unheard-of")
    assert registry.unregister("irc")


def test_an_adapter_that_is_told_no_platform_outside_a_factory_says_so() -> None:
    with pytest.raises(TypeError, match=r"Guided\(config, platform\): the argument `platform` is missing"):
        Guided(PlatformConfig())


# -- the page -------------------------------------------------------------------------------------------------------


def test_the_page_prints_the_contract_as_it_is() -> None:
    page = (PAGES / "platform.md").read_text()

    assert f"```python\n{outline(BasePlatformAdapter)}\n```" in page
    for name in PlatformEntry.__dataclass_fields__:
        assert f"| `{name}` |" in page, name
    assert "(../../../tests/plugins/examples/platform)" in page
    assert hasattr(PluginContext, PLATFORM.ctx_method)
    assert f"`ctx.{SLACK_ACTION.ctx_method}(action_id, callback)`" in page

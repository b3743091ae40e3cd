"""Options that plugins declare in `config_schema` of their manifests (contract of 0.23 §4.4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
END = "1 error; every key with its type and default: docs/reference/config.md\n"


@pytest.fixture
def weather(home: Path) -> Path:
    """A plugin in the home that declares two options, one of them a secret."""
    folder = home / "plugins" / "weather"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def register(ctx):\n    pass\n")
    (folder / "plugin.yaml").write_text(
        "name: weather\nconfig_schema:\n"
        "  units: {type: str, choices: [metric, imperial], default: metric}\n"
        "  days: {type: int, description: Days of a forecast}\n"
        "  key: {type: secret, required: true}\n"
    )
    return folder


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("platforms.irc.servr", "x", "unknown key `platforms.irc.servr` (did you mean `platforms.irc.server`?)"),
        ("platforms.irc.extra.servr", "x", "unknown key `platforms.irc.extra.servr` "
         "(did you mean `platforms.irc.extra.server`?)"),
        ("platforms.slack.apptoken", "x", "unknown key `platforms.slack.apptoken` "
         "(did you mean `platforms.slack.app_token`?)"),
        ("platforms.irc.port", "many", 'platforms.irc.port: expected an integer, got the text "many"'),
        ("platforms.xmpp.tls", "direkt", "platforms.xmpp.tls: expected one of `starttls`, `direct`, `none`, "
         'got the text "direkt" (did you mean `direct`?)'),
        ("platforms.email.skip_attachments", "perhaps", "platforms.email.skip_attachments: expected true or false, "
         'got the text "perhaps"'),
        ("platforms.matrix.allow_form", "[a]", "unknown key `platforms.matrix.allow_form` "
         "(did you mean `platforms.matrix.allow_from`?)"),
        ("plugins.entries.weather.settings.dasy", "2", "unknown key `plugins.entries.weather.settings.dasy` "
         "(did you mean `plugins.entries.weather.settings.days`?)"),
    ],
)  # fmt: skip
def test_a_typo_in_an_option_of_a_plugin_is_refused_with_what_was_meant(
    home: Path, weather: Path, hermes_config: Run, key: str, value: str, words: str
) -> None:
    ran = hermes_config("set", key, value)

    assert (ran.status, ran.out, ran.err) == (78, "", f"{words}\n{END}")
    assert not (home / "config.yaml").exists()


def test_a_text_that_reads_as_the_options_type_is_taken_as_adapters_take_it(home: Path, hermes_config: Run) -> None:
    (home / "config.yaml").write_text(
        'platforms:\n  irc: {port: "6697", use_tls: "no", channel: "#a,#b", flood_interval: "0.5", nickname: null}\n'
        '  matrix: {extra: {auto_join: "${HERMES_TEST_JOIN}"}}\n'
    )
    (home / ".env").write_text("HERMES_TEST_JOIN=yes\n")

    assert hermes_config("check").err == ""
    assert hermes_config("check").out.endswith("is valid (6 keys)\n")
    assert hermes_config("check", str(home / "config.yaml"), "--strict").status == 0


def test_a_key_that_a_platforms_plugin_does_not_declare_is_named_and_strictly_refused(
    home: Path, hermes_config: Run
) -> None:
    ran = hermes_config("set", "platforms.irc.wallpaper", "blue")
    assert (ran.status, ran.err) == (
        0, "`platforms.irc.wallpaper` is not a key that plugin `irc-platform` declares\n",
    )  # fmt: skip

    words = f"{home}/config.yaml:3: no effect: `platforms.irc.wallpaper`. Plugin `irc-platform` declares no such key"
    assert hermes_config("check").out.splitlines()[0] == words
    assert hermes_config("check", "--strict").status == 78


def test_show_and_get_know_defaults_and_secrets_of_options(home: Path, weather: Path, hermes_config: Run) -> None:
    hermes_config("set", "platforms.irc.server", "irc.test")
    hermes_config("set", "plugins.entries.weather.settings", "{key: hunter2}")

    assert hermes_config("get", "platforms.irc.nickname").out == "hermes-bot\n"
    assert hermes_config("get", "platforms.telegram.poll_timeout").out == "50\n"
    shown = json.loads(hermes_config("show", "--json").out)
    assert list(shown["platforms"]) == ["irc"], "platforms that nobody wrote about are not shown"
    assert shown["platforms"]["irc"]["identify_by"] == "nick"
    assert shown["plugins"]["entries"]["weather"]["settings"] == {"key": "[redacted]", "units": "metric"}
    assert list(shown["plugins"]["entries"]) == ["weather"]


def test_what_does_not_fit_the_settings_of_a_plugin_is_a_note_of_the_check(
    home: Path, weather: Path, hermes_config: Run
) -> None:
    (home / "config.yaml").write_text("plugins:\n  entries:\n    weather:\n      settings: {days: true}\n")

    ran = hermes_config("check")

    assert ran.status == 0
    assert "plugins.entries.weather.settings.days: expected an integer, got true" in ran.out

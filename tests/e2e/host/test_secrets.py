"""What a process masks: secrets of credentials and config, as plugins declare them, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.core.redaction import redactor
from hermes_agent.host import Host

ENV = """
IRC_SERVER=127.0.0.1
IRC_CHANNEL='#welcome-room'
IRC_ALLOWED_USERS=alexander,katharina
IRC_SASL_PASSWORD=ordinary-words
CODE_OF_DOOR=open-sesame-now
DOOR_KEY=under-the-mat
TEAM_VALUE=value-of-the-team
TREASURE_TOKEN=words-of-treasure
VAULT_ANSWER=forty-two-and-more
"""
CONFIG = """
plugins: {enabled: [door], entries: {door: {settings: {phrase: speak-friend-and-enter, colour: ultramarine}}}}
providers:
  team:
    {base_url: "http://127.0.0.1:1/v1", api_key_env: TEAM_VALUE, headers: {X-Team: team-word, X-Title: ordinary-title}}
platforms:
  xmpp: {jid: agent@chat.example.org, password: agents-own-word, nickname: archimedes}
mcp_servers:
  notes: {command: notes, env: {NOTES_PLACE: /srv/all-notes, NOTES_TOKEN: note-words, NOTES_STYLE: elaborate}}
"""
MANIFEST = """
name: door
requires_env:
  - {name: CODE_OF_DOOR, secret: true}
optional_env:
  - {name: DOOR_KEY, description: where it lies, password: false}
config_schema:
  phrase: {type: string, secret: true}
  colour: {type: string}
  api_key: {type: string}
"""
NOT_ENABLED = """
name: burglar
requires_env:
  - {name: TREASURE_TOKEN, secret: false}
  - {name: VAULT_ANSWER, secret: true}
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    for name in ("IRC_SERVER", "IRC_SASL_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".env").write_text(ENV)
    (tmp_path / ".env").chmod(0o600)
    (tmp_path / "config.yaml").write_text(CONFIG)
    folder = tmp_path / "plugins" / "door"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(MANIFEST)
    (folder / "__init__.py").write_text("def register(ctx): pass\n")
    (tmp_path / "plugins" / "burglar").mkdir()
    (tmp_path / "plugins" / "burglar" / "plugin.yaml").write_text(NOT_ENABLED)
    (tmp_path / "plugins" / "burglar" / "__init__.py").write_text("def register(ctx): pass\n")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    before = redactor.snapshot()
    host = Host.build(tmp_path)
    host.load_plugins()
    yield host
    host.bridge.close()
    redactor.restore(before)


def test_settings_of_a_chat_platform_in_env_stay_readable_and_secrets_everywhere_are_masked(host: Host) -> None:
    plain = "127.0.0.1 localhost alexander katharina #welcome-room under-the-mat ultramarine ordinary-title archimedes"
    plain += " agent@chat.example.org /srv/all-notes elaborate"
    assert redactor(plain) == plain
    secret = (
        "ordinary-words open-sesame-now value-of-the-team speak-friend-and-enter team-word agents-own-word note-words"
    )
    assert redactor(secret) == " ".join(["[redacted]"] * 7)
    assert host.credentials.get("IRC_SERVER") == "127.0.0.1"


def test_a_secret_that_comes_with_a_reload_is_masked_from_then_on(host: Host) -> None:
    (host.home / ".env").write_text("CODE_OF_DOOR=a-new-word-for-it\nIRC_SERVER=irc.example.org\n")
    host.reread_config()
    assert redactor("a-new-word-for-it at irc.example.org") == "[redacted] at irc.example.org"


def test_a_plugin_that_does_not_run_makes_no_secret_readable(host: Host) -> None:
    assert redactor("words-of-treasure forty-two-and-more") == "[redacted] [redacted]"


def test_an_option_with_the_name_of_a_secret_is_masked_though_its_plugin_declares_it_as_any_text(host: Host) -> None:
    changed = CONFIG.replace("colour: ultramarine", "colour: vermilion, api_key: words-behind-the-door")
    (host.home / "config.yaml").write_text(changed)
    host.reread_config()
    assert redactor("words-behind-the-door in vermilion") == "[redacted] in vermilion"

from __future__ import annotations

import pytest

from hermes_agent.config.schema import load_schema
from hermes_agent.config.validate import validate
from hermes_agent.core.text import distance, is_near_miss, nearest_name

# Names of published plugins, and of blocks that they keep in the config.
_PLUGINS = """
camofox cloudflare_access murf vault yandex serpapi lossless-hermes acp agentguard agentguard-spend agento11y
atbash hermead chat-recorder tenuo latitude-telemetry opik preloop securevector atomicmemory llmwiki xmemo
memorylake mnemosyne sibyl clawrouter scythe band email_pp vk yoooclaw_app ssh tweet workflow yandex-disk
jovaltus plur priority-erp sagtask apertis evolve nanogpt napcat prism session-titler smart-router
token-consumption-tracker vinctor zenmux honcho mem0 memori modal hindsight holographic retaindb byterover
supermemory openviking langfuse langsmith weather calculator irc nostr signal teams zulip spotify todoist
notion linear github gitlab jira obsidian home-assistant firecrawl tavily exa searxng piper kokoro whisper
coqui daytona e2b fly grafana loki sentry prometheus guard audit budget translate summarizer reminders
calendar contacts photos maps wiki rag vector embed
"""
PLUGINS = sorted(set(_PLUGINS.split()))


@pytest.mark.parametrize("name", PLUGINS)
@pytest.mark.parametrize("place", [(), ("plugins",), ("memory",), ("auxiliary",), ("platforms", "irc")])
def test_a_plugins_name_is_never_taken_for_a_typo(name: str, place: tuple[str, ...]) -> None:
    value: object = {name: {"api_url": "x", "units": "metric"}}
    for part in reversed(place):
        value = {part: value}
    assert [v.kind for v in validate(value)] == []


@pytest.mark.parametrize("key", sorted(load_schema()["properties"]))
def test_a_slip_of_the_fingers_in_a_top_level_key_is_a_near_miss(key: str) -> None:
    if len(key.strip("_")) < 4:
        return
    middle = len(key) // 2
    swapped = key[: middle - 1] + key[middle] + key[middle - 1] + key[middle + 1 :]
    for slip in {key[:middle] + key[middle + 1 :], key[:middle] + key[middle] + key[middle:], swapped} - {key}:
        if slip in load_schema()["properties"] or min(len(slip), len(key)) < 4:
            continue
        assert [v.kind for v in validate({slip: 1}) if v.kind == "near_miss"] == ["near_miss"], slip


@pytest.mark.parametrize(
    ("name", "known", "looks_alike", "near"),
    [
        ("modle", "model", False, True),
        ("modal", "model", False, False),
        ("modal", "model", True, True),
        ("memori", "memory", False, False),
        ("Model", "model", False, True),
        ("max-turns", "max_turns", False, True),
        ("plugin", "plugins", False, True),
        ("personality", "personalities", False, True),
        ("tts", "stt", False, False),
        ("lsp", "moa", False, False),
        ("platfroms", "platforms", False, True),
        ("compresion", "compression", False, True),
        ("custom_provders", "custom_providers", False, True),
        ("command_alowlst", "command_allowlist", False, True),
        ("model", "model", False, False),
    ],
)
def test_near_misses_are_told_from_names(name: str, known: str, looks_alike: bool, near: bool) -> None:
    assert is_near_miss(name, known, looks_alike=looks_alike) is near


@pytest.mark.parametrize(
    ("left", "right", "edits"),
    [("", "", 0), ("ab", "ba", 1), ("abc", "", 3), ("kitten", "sitting", 3), ("modle", "model", 1), ("a", "b", 1)],
)
def test_the_distance_counts_inserted_missing_wrong_and_swapped_letters(left: str, right: str, edits: int) -> None:
    assert distance(left, right) == distance(right, left) == edits


def test_the_nearest_name_is_none_when_all_are_far() -> None:
    assert nearest_name("zzzz", ["model", "agent"]) is None
    assert nearest_name("hots", ["host", "port"]) == "host"
    assert nearest_name("x", []) is None

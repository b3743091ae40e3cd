"""A provider of each kind in a process of its own, as the agent calls it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.secret_source import ErrorKind, FetchResult
from hermes_agent.plugins.host_services import KINDS
from hermes_agent.plugins.isolation.hosted_context import REFUSED
from hermes_agent.plugins.isolation.passed_files import MAX_BYTES
from hermes_agent.testing import PluginHost, plugin_host
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox

DATA = Path(__file__).parent / "isolated" / "kinds"
PROBLEM = BubblewrapSandbox(PathRules("/nonexistent", str(Path.home())), path=os.environ.get("PATH")).problem
pytestmark = [
    pytest.mark.skipif(bool(PROBLEM), reason=f"no sandbox works here: {PROBLEM}"),
    pytest.mark.xdist_group("isolation"),
]


@pytest.fixture(scope="module")
def kinds() -> Iterator[PluginHost]:
    with plugin_host(DATA, config={"plugins": {"isolation": "host", "host": {"memory_mb": 512}}}) as host:
        yield host


def _search(own: Any, folder: Path) -> None:
    assert own.search("words", limit=1)["data"]["web"][0]["title"] == "words"
    assert own.supports_extract() and own.extract(["u"])[0]["content"] == "page"


def _speak(own: Any, folder: Path) -> None:
    assert own.synthesize("hello", str(folder / "said.ogg")) == str(folder / "said.ogg")
    assert (folder / "said.ogg").read_bytes() == b"hello"
    assert own.synthesize("notes", str(folder / "said.ogg")) == str(folder / "said.md")
    (folder / "said.md").write_text("of the user")
    with pytest.raises(ValueError, match=r"said\.md is another file already"):
        own.synthesize("notes", str(folder / "said.ogg"))
    assert (folder / "said.md").read_text() == "of the user"
    assert own.default_voice() == "alto" and b"".join(own.stream("hello")) == b"hello"


def _listen(own: Any, folder: Path) -> None:
    (folder / "heard.ogg").write_text("some words")
    assert own.transcribe(str(folder / "heard.ogg"), language="en")["transcript"] == "some words"
    (folder / "long.ogg").write_bytes(bytes(MAX_BYTES + 1))
    with pytest.raises(ValueError, match=r"long\.ogg has 20971521 bytes"):
        own.transcribe(file_path=str(folder / "long.ogg"))


def _paint(own: Any, folder: Path) -> None:
    (folder / "before.png").write_bytes(b"a dog")
    made = own.generate("cat", image_url=str(folder / "before.png"), reference_image_urls=["https://example.org/x.png"])
    assert Path(made["image"]).read_bytes() == b"cat beside a dog" and Path(made["image"]).suffix == ".png"
    with pytest.raises(ValueError, match="answers with the file /etc/hostname-of-the-agent"):
        own.generate("/etc/hostname-of-the-agent")


def _film(own: Any, folder: Path) -> None:
    assert own.generate("cat", duration=3)["video"] == "https://example.org/cat.mp4"


def _browse(own: Any, folder: Path) -> None:
    assert own.create_session("t1")["session_name"] == "t1"
    assert (own.close_session("s1"), own.close_session("s2")) == (True, False)


def _run_commands(own: Any, folder: Path) -> None:
    environment = own.create_environment(cwd="/w", timeout=5)
    assert environment.execute("ls") == {"output": "ls in /w", "returncode": 0}
    environment.cleanup()
    assert environment.execute("ls")["output"] == "ls in "


def _fetch_secrets(own: Any, folder: Path) -> None:
    assert own.fetch({"value": "v"}, folder) == FetchResult(secrets={"OWN_TOKEN": "v"})
    failed = own.fetch({"fail": True}, folder)
    assert (failed.ok, failed.error, failed.error_kind) == (False, "locked", ErrorKind.NETWORK)


def _compress(own: Any, folder: Path) -> None:
    assert own.should_compress(10)
    assert own.compress([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]) == [
        {"role": "user", "content": "b"}
    ]
    own.update_from_response({"prompt_tokens": 7})
    assert own.last_prompt_tokens == 7


def _remember(own: Any, folder: Path) -> None:
    own.initialize("s1")
    assert own.get_tool_schemas()[0]["name"] == "recall"
    assert own.handle_tool_call("recall", {}) == "recall of s1" and own.prefetch("letters") == "about letters"


CALLS: dict[str, Callable[[Any, Path], None]] = {
    "web_search": _search,
    "tts": _speak,
    "transcription": _listen,
    "image_gen": _paint,
    "video_gen": _film,
    "browser": _browse,
    "terminal_env": _run_commands,
    "secret_source": _fetch_secrets,
    "context_engine": _compress,
    "memory": _remember,
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_provider_of_a_kind_answers_the_agent(kind: str, kinds: PluginHost, tmp_path: Path) -> None:
    CALLS[kind](kinds.host.providers[kind].get("own"), tmp_path)


def test_each_kind_of_provider_works_or_is_refused_by_name() -> None:
    refused = {spec.kind.name for spec in KINDS.values() if spec.kind.ctx_method in REFUSED}
    assert refused == {"cron_scheduler", "dashboard_auth"}
    assert {*KINDS} == {*CALLS} | refused


def test_patterns_and_blueprints_reach_the_agent(kinds: PluginHost) -> None:
    (record,) = [r for r in kinds.host.plugins.records if r.manifest.key == "kinds"]
    assert record.enabled and record.process is not None
    assert len(record.registers()["providers"]) == len(CALLS)

"""What the members of chapter 9 of the plugin contract of 0.23 do: engines, model profiles, speech, jobs, terminals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from hermes_agent.contracts.context_engine import ContextEngine
from hermes_agent.contracts.cron_scheduler import CronScheduler
from hermes_agent.contracts.image_video import save_url_video
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.contracts.speech import TranscriptionProvider, TTSProvider
from hermes_agent.contracts.terminal_env import TerminalEnvironmentProvider
from hermes_agent.contracts.web import WebSearchProvider, choose_web_search
from hermes_agent.core.messages import Notice, Usage
from hermes_agent.models.model_catalog import ModelCatalog, fetch_model_ids
from hermes_agent.models.providers import provider_from_profile
from hermes_agent.models.selection import ModelEndpoint
from hermes_agent.system.processes import tool_environment
from hermes_agent.testing import PluginHost, ScriptedModel, plugin_host
from hermes_agent.testing.scripted_model import served
from hermes_agent.workspace.backend_selection import PluginBackend

LONG = "word " * 300

# -- context engines -------------------------------------------------------------------------------------------


class Picking(ContextEngine):
    """An engine that sends the last message alone, and shortens what it is asked for."""

    calls: ClassVar[list[tuple[str, Any]]] = []
    due = False

    @property
    def name(self) -> str:
        return "picking"

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return self.due

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        return False, "it waits for the evening"

    def compress(self, messages: Any, current_tokens: int | None = None, **kwargs: Any) -> Any:
        return messages[-1:]

    def prune_tool_results_only(self, messages: Any, current_tokens: int | None = None) -> Any:
        self.calls.append(("prune", current_tokens))
        return messages, 0

    def select_context(self, request_messages: Any, *, incoming_message: Any, budget_tokens: int) -> Any:
        self.calls.append(("select", (len(request_messages), incoming_message["content"][:2], budget_tokens)))
        return request_messages[-1:]

    def on_turn_complete(self, messages: Any, usage: Any, **kwargs: Any) -> None:
        self.calls.append(("turn", (len(messages), usage["total_tokens"] > 0, sorted(kwargs))))

    def get_automatic_compaction_status_message(self, **kwargs: Any) -> str:
        return f"{kwargs['phase']}: {kwargs['default_message'][:29]}"


class Due(Picking):
    """The same, which always wants to shorten."""

    due = True


@contextlib.contextmanager
def hosted(engine: ContextEngine, *answers: str) -> Iterator[tuple[PluginHost, ScriptedModel]]:
    model = ScriptedModel(*answers)
    with served(model) as url:
        block = {"provider": "custom", "base_url": url, "default": model.name, "context_length": 4000}
        config = {"context": {"engine": "picking"}, "model": block}
        with plugin_host(lambda ctx: ctx.register_context_engine(engine), config=config) as host:
            yield host, model


def test_an_engine_selects_the_messages_of_a_request_and_hears_of_the_end_of_a_turn() -> None:
    Picking.calls.clear()
    with hosted(Picking(), "one", "two") as (host, model):
        host.ask("q1")
        host.ask("q2")
        sent = [m["content"] for m in model.requests[-1]["messages"] if m["role"] != "system"]
        assert "Not due now: it waits for the evening" in (host.run_command("/context") or "")
        assert [m.text for m in host.conversation.history] == ["q1", "one", "q2", "two"]
    assert sent == ["q2"]
    assert [value[:2] for kind, value in Picking.calls if kind == "select"] == [(1, "q1"), (3, "q2")]
    keywords = ["api_call_count", "interrupted", "session_id", "turn_id"]
    assert [value for kind, value in Picking.calls if kind == "turn"] == [(2, True, keywords), (4, True, keywords)]


def test_an_engine_prunes_first_and_words_the_notice_of_a_compaction() -> None:
    Picking.calls.clear()
    with hosted(Due(), "one", "two") as (host, _):
        host.ask("q1")
        answer = host.ask(f"q2 {LONG}")
    assert "prune" in [kind for kind, _ in Picking.calls]
    assert [each.text for each in answer.events if isinstance(each, Notice)] == [
        "compress: The conversation was made sho"
    ]


# -- model profiles --------------------------------------------------------------------------------------------


class Acme(ProviderProfile):
    """A profile that decides all that it may."""

    def listed(self) -> bool:
        return False

    def discover_models(self, **options: Any) -> Any:
        return [{"id": f"found-{options['api_key']}"}, "plain"]

    def get_model_context_length(self, model: str) -> int | None:
        return {"big": 123_456}.get(model)

    def get_usage_cost(self, model: str, usage: Any) -> Any:
        return 0.5 * usage.output_tokens + usage.input_tokens + usage.cache_read_tokens / 4

    def resolve_aux_model(self, *, vision: bool = False) -> str:
        return "sees" if vision else "small"

    def default_reasoning_config(self, model: str) -> dict[str, Any] | None:
        return {"enabled": True, "effort": "high"} if model != "dull" else None

    def supported_reasoning_efforts(self, model: str) -> tuple[str, ...] | None:
        return ("low", "high") if model != "mute" else ()

    def fetch_account_usage(self, **options: Any) -> Any:
        return {}


def test_the_methods_of_a_profile_are_asked(tmp_path: Path) -> None:
    provider = provider_from_profile(Acme("acme", base_url="https://models.acme.test/v1", env_vars=("ACME_KEY",)))
    endpoint = ModelEndpoint(provider, provider.base_url, "k1")
    catalog = ModelCatalog(tmp_path)
    assert fetch_model_ids(endpoint) == ["found-k1", "plain"]
    assert catalog.context_length(endpoint, "big", {}) == 123_456
    assert catalog.context_length(endpoint, "small", {}) not in (0, 123_456)
    assert catalog.is_priced(endpoint, "big")
    assert catalog.listed_cost_usd(endpoint, "big", Usage(10, 4, 8)) == 2.0 + 2 + 2


def test_a_profile_decides_the_effort_and_the_auxiliary_model() -> None:
    profile = Acme("acme", base_url="https://models.acme.test/v1", env_vars=("ACME_KEY",))

    def effort(model: str, configured: str = "") -> str:
        config = {"model": {"provider": "acme", "default": model, "api_key": "k"}}
        config["agent"] = {"reasoning_effort": configured}
        with plugin_host(lambda ctx: ctx.register_model_provider(profile), config=config) as host:
            assert host.notes == ["model provider `acme`: fetch_account_usage have no effect here"]
            return str(host.host.select_model(provider="acme", model=model).reasoning_effort)

    assert [effort("big"), effort("dull"), effort("big", "low"), effort("big", "medium"), effort("mute")] == [
        "high",
        "",
        "low",
        "",
        "",
    ]
    assert (profile.resolve_aux_model(), profile.resolve_aux_model(vision=True)) == ("small", "sees")


# -- speech, web search, jobs ----------------------------------------------------------------------------------


class Speaker(TTSProvider):
    """A provider that notes what is called."""

    name = "speaker"  # type: ignore[assignment]

    def __init__(self) -> None:
        self.calls: list[str] = []

    def synthesize(self, text: str, output_path: str, **options: Any) -> str:
        self.calls.append(text)
        Path(output_path).write_bytes(b"sound")
        return output_path

    def warm(self) -> None:
        self.calls.append("warm")

    def release(self) -> None:
        self.calls.append("release")
        raise RuntimeError("the model is gone already")


class Files(TranscriptionProvider):
    """A provider of files alone."""

    name = "files"  # type: ignore[assignment]

    def transcribe(self, file_path: str, **options: Any) -> dict[str, Any]:
        return {"success": True, "transcript": ""}


def test_a_speaker_prepares_once_and_releases_at_the_end() -> None:
    speaker = Speaker()

    def register(ctx: Any) -> None:
        ctx.register_tts_provider(speaker)

    with plugin_host(register, config={"tts": {"provider": "speaker"}}) as host:
        for text in ("one", "two"):
            assert json.loads(host.dispatch_tool("text_to_speech", {"text": text}))["success"]
    assert speaker.calls == ["warm", "one", "two", "release"]
    files = Files()
    assert files.streaming_capable is False
    with pytest.raises(NotImplementedError, match="'files' does not stream"):
        files.open_stream_session(language="de")


class Search(WebSearchProvider):
    """A provider that has no key."""

    name = "keyless"  # type: ignore[assignment]
    free = True

    def is_available(self) -> bool:
        return False

    def is_keyless_available(self) -> bool:
        return self.free


def test_a_search_without_a_key_is_used_where_no_other_is_available() -> None:
    search = Search()
    assert choose_web_search({"keyless": search}, {}).provider is search
    search.free = False
    assert choose_web_search({"keyless": search}, {}).provider is None


class Outside(CronScheduler):
    """A scheduler of another service."""

    name = "outside"  # type: ignore[assignment]

    def start(self, stop_event: threading.Event, **options: Any) -> None:
        stop_event.wait(1)


def test_a_job_is_claimed_and_fired_in_two_steps() -> None:
    scheduler, ran = Outside(), []
    assert (scheduler.claim_fire("j1"), scheduler.fire_due("j1", force=True, manual=True)) == (None, False)
    scheduler.run_due = lambda job: not ran.append(job)  # type: ignore[func-returns-value]
    claimed = scheduler.claim_fire("j1", manual=True)
    assert claimed == {"id": "j1", "force": False, "manual": True}
    assert scheduler.fire_claimed(claimed) is True
    stopped = threading.Event()
    stopped.set()
    assert scheduler.fire_claimed(claimed, cancel_event=stopped) is False
    assert scheduler.fire_due("j2", manual=True) is True
    assert ran == ["j1", "j2"]
    assert scheduler.supports_force_fire is False


async def test_an_external_scheduler_gets_each_enabled_job() -> None:
    from hermes_agent.cron.scheduler import JobScheduler

    seen: list[Any] = []

    class Planning(Outside):
        def register_job(self, job: Any) -> None:
            seen.append((job["id"], job["next_run_at"]))

    def job(name: str, enabled: bool) -> SimpleNamespace:
        values = {"name": name, "prompt": "p", "deliver": "local", "schedule": "daily"}
        return SimpleNamespace(id=name, enabled=enabled, next_run=5.0, **values)

    async def call(method: Any) -> list[Any]:
        return [job("a", True), job("b", False)]

    async def run() -> None:
        loop = asyncio.get_running_loop()
        own = SimpleNamespace(call=call)
        await asyncio.to_thread(JobScheduler._register_jobs, own, Planning(), loop)  # type: ignore[arg-type]
        await asyncio.to_thread(JobScheduler._register_jobs, own, Outside(), loop)  # type: ignore[arg-type]

    await run()
    assert seen == [("a", 5.0)]


# -- terminals -------------------------------------------------------------------------------------------------


class Sealed(TerminalEnvironmentProvider):
    """A place that keeps a token to itself."""

    name = "sealed"  # type: ignore[assignment]

    @property
    def strip_env_keys(self) -> frozenset[str]:
        return frozenset({"SEALED_TOKEN"})

    @property
    def cache_path_base(self) -> str | None:
        return "/srv/cache"

    def is_available(self) -> bool:
        return False

    def create_environment(self, **options: Any) -> Any:
        raise AssertionError("it is not used")

    def setup_instructions(self) -> list[str]:
        return ["Sign in first."]


def test_variables_of_a_place_reach_no_command_while_it_is_registered() -> None:
    environ = {"SEALED_TOKEN": "s", "OPEN": "o"}
    contexts: list[Any] = []

    def register(ctx: Any) -> None:
        contexts.append(ctx.register_terminal_environment_provider(Sealed()))

    with plugin_host(register):
        assert tool_environment(environ, passthrough=["SEALED_TOKEN", "OPEN"]) == {"OPEN": "o"}
        contexts[0].dispose()
        assert tool_environment(environ, passthrough=["SEALED_TOKEN", "OPEN"]) == environ


def test_a_place_says_where_the_cache_is_and_what_the_setup_needs() -> None:
    place = PluginBackend(Sealed(), {})
    assert place.description.endswith("/cache here is in /srv/cache there.")
    assert (False, "sealed setup", "Sign in first.") in place.checks()


# -- downloads -------------------------------------------------------------------------------------------------


class Videos(ThreadingHTTPServer):
    """A server that redirects the first address."""

    seen: ClassVar[list[tuple[str, str | None]]] = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        Videos.seen.append((self.path, self.headers.get("x-key")))
        self.send_response(302 if self.path == "/first" else 200)
        if self.path == "/first":
            self.send_header("location", "/second.mp4")
        self.send_header("content-type", "text/html" if self.path == "/page" else "video/mp4")
        self.send_header("content-length", "0" if self.path == "/first" else "5")
        self.end_headers()
        if self.path != "/first":
            self.wfile.write(b"bytes")

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def videos() -> Iterator[str]:
    server = Videos(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_headers_of_a_download_reach_its_first_address_alone(videos: str) -> None:
    Videos.seen.clear()
    with plugin_host(lambda ctx: None):
        path = save_url_video(f"{videos}/first", headers={"X-Key": "k"}, require_video_content_type=True)
        assert Path(path).read_bytes() == b"bytes"
        save_url_video(f"{videos}/a.mp4", headers={"X-Key": "k"}, trusted_origin="https://else.test")
        with pytest.raises(ValueError, match="of type text/html: expected a video"):
            save_url_video(f"{videos}/page", require_video_content_type=True)
    assert Videos.seen == [("/first", "k"), ("/second.mp4", None), ("/a.mp4", None), ("/page", None)]

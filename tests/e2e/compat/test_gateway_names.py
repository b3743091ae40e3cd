"""`gateway.*`: every name that is served, called once and compared with plugin contract §11.2 and §11.3."""

# ruff: noqa: E501
# A signature stands in one line, as in the contract.

from __future__ import annotations

import enum
import http.server
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes_agent.compat.import_hook import reason
from hermes_agent.host import Host

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)

SIGNATURES = {
    "gateway.platforms.base": """
        resolve_proxy_url(platform_env_var: str | None = None, *, target_hosts: str | list[str] | tuple[str, ...] | set[str] | None = None) -> str | None
        cache_image_from_bytes(data: bytes, ext: str = '.jpg') -> str
        cache_document_from_bytes(data: bytes, filename: str) -> str
        proxy_kwargs_for_aiohttp(proxy_url: str | None) -> tuple[dict[str, Any], dict[str, Any]]
        cache_audio_from_bytes(data: bytes, ext: str = '.ogg') -> str
        cache_image_from_url(url: str, ext: str = '.jpg', retries: int = 2) -> str
        resolve_channel_prompt(config_extra: dict[str, Any], channel_id: str, parent_id: str | None = None) -> str | None
        cache_media_bytes(data: bytes, *, filename: str = '', mime_type: str = '', default_kind: str | None = None) -> CachedMedia | None
        utf16_len(s: str) -> int
        cache_video_from_bytes(data: bytes, ext: str = '.mp4') -> str
        _ssrf_redirect_guard(response: httpx.Response) -> None
        cache_audio_from_url(url: str, ext: str = '.ogg', retries: int = 2) -> str
        _prefix_within_utf16_limit(s: str, limit: int) -> str
        resolve_channel_skills(config_extra: dict[str, Any], channel_id: str, parent_id: str | None = None) -> list[str] | None
        get_audio_cache_dir() -> Path
        get_document_cache_dir() -> Path
        get_image_cache_dir() -> Path
        get_video_cache_dir() -> Path
        validate_inbound_media_size(size: int, *, media_type: str = 'media', max_bytes: int | None = None) -> None
        proxy_kwargs_for_bot(proxy_url: str | None) -> dict[str, Any]
        classify_send_error(exc: BaseException | None, error_text: str = '') -> str
        merge_pending_message_event(pending_messages: MutableMapping[str, MessageEvent], session_key: str, event: MessageEvent, *, merge_text: bool = False) -> None
        is_network_accessible(host: str) -> bool
        is_host_excluded_by_no_proxy(hostname: str, no_proxy_value: str | None = None) -> bool
        safe_url_for_log(url: str, max_len: int = 80) -> str
    """,
    "gateway.platforms.helpers": """
        strip_markdown(text: str) -> str
        convert_table_to_bullets(text: str) -> str
        redact_phone(phone: str) -> str
        MessageDeduplicator(max_size: int = 2000, ttl_seconds: float = 300) -> None
        ThreadParticipationTracker(platform_name: str, max_tracked: int = 500) -> None
    """,
    "gateway.session": """
        build_session_key(source: SessionSource, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False, profile: str | None = None) -> str
    """,
    "gateway.session_context": "get_session_env(name: str, default: str = '') -> str",
    "gateway.status": """
        release_scoped_lock(scope: str, identity: str) -> None
        _pid_exists(pid: int) -> bool
        acquire_scoped_lock(scope: str, identity: str, metadata: dict[str, Any] | None = None) -> tuple[bool, dict[str, Any] | None]
        get_process_start_time(pid: int) -> int | None
        _read_process_cmdline(pid: int) -> str | None
    """,
    "gateway.platforms._http_client_limits": "platform_httpx_limits() -> httpx.Limits | None",
    "gateway.config": "load_gateway_config() -> GatewayConfig",
}
CLASSES = {
    "gateway.platforms.base": "MessageEvent MessageType BasePlatformAdapter SendResult ProcessingOutcome",
    "gateway.config": "Platform PlatformConfig HomeChannel GatewayConfig",
    "gateway.session": "SessionSource",
    "gateway.platform_registry": "PlatformEntry PlatformRegistry",
}


@pytest.fixture(autouse=True)
def _environment(served: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_GATEWAY_LOCK_DIR", str(tmp_path / "locks"))
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("module", SIGNATURES)
def test_the_signatures_are_the_contract_s(module: str) -> None:
    served = importlib.import_module(module)
    for line in SIGNATURES[module].strip().splitlines():
        name, rest = re.fullmatch(r"\s*(\w+)(.*)", line).groups()  # type: ignore[union-attr]
        function = getattr(served, name)
        signature = re.sub(r"'(?=[^']*(?:'|$))([^']*)'", r"\1", str(inspect.signature(function)))
        assert signature == rest.replace("'", ""), name
        assert inspect.iscoroutinefunction(function) is ("_from_url" in name or "ssrf" in name)


@pytest.mark.parametrize("module", CLASSES)
def test_the_classes_are_there_under_their_names(module: str) -> None:
    served = importlib.import_module(module)
    for name in CLASSES[module].split():
        assert getattr(served, name).__name__ == name


def test_one_name_is_one_object_wherever_it_is_imported_from() -> None:
    import hermes_constants
    from gateway.platforms import BasePlatformAdapter, base

    from gateway import config, session

    assert base.BasePlatformAdapter is BasePlatformAdapter
    assert (base.Platform, base.PlatformConfig) == (config.Platform, config.PlatformConfig)
    assert base.SessionSource is session.SessionSource
    assert config.get_hermes_home is hermes_constants.get_hermes_home
    assert issubclass(base.MessageType, enum.Enum)


@pytest.mark.parametrize(
    "module",
    ["delivery_ledger", "hooks"],
)
def test_what_is_not_served_says_why(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="hermes-agent does not serve it"):
        importlib.import_module(f"gateway.{module}")
    assert "no published plugin" not in reason(f"gateway.{module}")


# -- gateway.config, gateway.session, gateway.platform_registry -----------------------------------------------------


def test_the_registry_is_the_host_s_own_and_what_is_patched_on_it_is_patched_for_the_agent(host: Host) -> None:
    from gateway.platform_registry import PlatformEntry, platform_registry

    assert platform_registry is host.platforms
    entry = PlatformEntry("patched", "P", lambda config: ("made of", config), lambda: True)
    platform_registry.get = lambda name: entry  # type: ignore[method-assign]

    assert host.platforms.create_adapter("anything", 5) == ("made of", 5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        PlatformEntry("x", "X", print, print, colour="red")  # type: ignore[call-arg]


def test_the_gateway_s_config_is_read_from_the_home(host: Host, home: Path) -> None:
    from gateway.config import Platform, load_gateway_config

    (home / "config.yaml").write_text(
        "group_sessions_per_user: false\n"
        "platforms:\n"
        "  slack: {enabled: true, token: t, reply_to_mode: off, home_channel: {chat_id: 7}, team: ours}\n"
        "  telegram: {enabled: false, home_channel: '-100'}\n"
    )
    config = load_gateway_config()

    slack = config.platforms[Platform.SLACK]
    assert (config.group_sessions_per_user, config.thread_sessions_per_user) == (False, False)
    assert config.get_connected_platforms() == [Platform.SLACK]
    assert (slack.token, slack.reply_to_mode, slack.extra) == ("t", "off", {"team": "ours"})
    home_channel = config.get_home_channel(Platform.TELEGRAM)
    assert home_channel is not None
    assert (home_channel.chat_id, config.get_home_channel(Platform.LOCAL)) == ("-100", None)
    assert type(slack).from_dict(slack.to_dict()) == slack
    assert "'t'" not in repr(slack)


def test_session_keys_are_the_contract_s() -> None:
    from gateway.config import Platform
    from gateway.session import SessionSource, build_session_key

    def key(chat_id: Any = "c", chat_type: str = "dm", *flags: bool, **more: Any) -> str:
        return build_session_key(SessionSource(Platform.SLACK, chat_id, chat_type=chat_type, **more), *flags)

    assert key() == "agent:main:slack:dm:c"
    assert key(thread_id="t", user_id="u") == "agent:main:slack:dm:c:t"
    assert key("", user_id="u") == "agent:main:slack:dm:u"
    assert key("", thread_id="t") == "agent:main:slack:dm:t"
    assert key("") == "agent:main:slack:dm"
    assert key("c", "group", user_id="u") == "agent:main:slack:group:c:u"
    assert key("c", "group", user_id="u", user_id_alt="v") == "agent:main:slack:group:c:v"
    assert key("c", "group", False, user_id="u") == "agent:main:slack:group:c"
    assert key("c", "thread", user_id="u", thread_id="t") == "agent:main:slack:thread:c:t"
    assert key("c", "thread", True, True, user_id="u", thread_id="t") == "agent:main:slack:thread:c:t:u"
    source = SessionSource(Platform.SLACK, "c", user_id="u")
    assert SessionSource.from_dict(json.loads(json.dumps(source.to_dict()))) == source


def test_the_session_of_a_message_is_seen_where_it_is_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway.config import Platform
    from gateway.session import SessionSource
    from gateway.session_context import get_session_env

    from hermes_agent.adapters.events import bind_session

    monkeypatch.setenv("HERMES_SESSION_CHAT_ID", "of the environment")
    with bind_session(SessionSource(Platform.SLACK, "c1"), "key"):
        inside = [get_session_env(f"HERMES_SESSION_{n}", "-") for n in ("PLATFORM", "CHAT_ID", "USER_ID", "KEY")]

    assert inside == ["slack", "c1", "-", "key"]
    assert get_session_env("HERMES_SESSION_CHAT_ID") == "of the environment"
    assert (get_session_env("HERMES_SESSION_KEY"), get_session_env("HERMES_SESSION_KEY", "d")) == ("", "d")


# -- gateway.status -------------------------------------------------------------------------------------------------


def test_a_lock_holds_across_processes_until_its_holder_ends(tmp_path: Path) -> None:
    from gateway.status import acquire_scoped_lock, release_scoped_lock

    code = (
        "import sys\n"
        "from hermes_agent.adapters.adapter_state import acquire_scoped_lock\n"
        "print(acquire_scoped_lock('bot token', 's3cret-token', {'platform': 'irc'})[0], flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        ok, holder = acquire_scoped_lock("bot token", "s3cret-token")
        assert holder is not None
        assert (ok, holder["pid"], holder["metadata"]) == (False, other.pid, {"platform": "irc"})
        assert acquire_scoped_lock("bot token", "another") == (True, None)
        release_scoped_lock("bot token", "s3cret-token")
        assert acquire_scoped_lock("bot token", "s3cret-token")[0] is False
        other.communicate("")
    ok, stale = acquire_scoped_lock("bot token", "s3cret-token")
    assert stale is not None
    assert (ok, stale["pid"]) == (True, other.pid)
    assert acquire_scoped_lock("bot token", "s3cret-token")[0] is True
    release_scoped_lock("bot token", "s3cret-token")
    assert acquire_scoped_lock("bot token", "s3cret-token") == (True, None)
    assert all("s3cret" not in p.name + p.read_text() for p in (tmp_path / "locks").iterdir())
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "locks").iterdir()} == {0o600}


def test_processes_are_told_by_number_start_and_command_line() -> None:
    from gateway.status import _pid_exists, _read_process_cmdline, get_process_start_time

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    assert (_pid_exists(os.getpid()), _pid_exists(gone.pid), _pid_exists(0)) == (True, False, False)
    start = get_process_start_time(os.getpid())
    assert isinstance(start, int)
    assert (get_process_start_time(gone.pid), _read_process_cmdline(gone.pid)) == (None, None)
    assert "python" in str(_read_process_cmdline(os.getpid()))


# -- gateway.platforms.helpers --------------------------------------------------------------------------------------


def test_a_message_is_a_duplicate_the_second_time() -> None:
    from gateway.platforms.helpers import MessageDeduplicator

    seen = MessageDeduplicator(max_size=2)
    assert [seen.is_duplicate(m) for m in ("a", "a", "", "", "b", "c", "a")] == [
        False,
        True,
        False,
        False,
        False,
        False,
        False,
    ]
    assert (seen.contains("a"), seen.contains("b"), seen.contains("x")) == (True, False, False)
    seen.discard("a")
    assert seen.is_duplicate("a") is False
    seen.clear()
    assert seen.contains("a") is False
    short = MessageDeduplicator(ttl_seconds=0)
    assert [short.is_duplicate("a"), short.is_duplicate("a")] == [False, False]


def test_threads_are_remembered_across_processes(home: Path) -> None:
    from gateway.platforms.helpers import ThreadParticipationTracker

    first = ThreadParticipationTracker("irc", max_tracked=2)
    for thread in ("1", "2", "2", "3"):
        first.mark(thread)
    again = ThreadParticipationTracker("irc")
    (home / "bad_threads.json").write_text("{")

    assert [t in again for t in ("1", "2", "3", "4")] == [False, True, True, False]
    assert "1" not in ThreadParticipationTracker("bad")


def test_marks_are_taken_out_of_a_text() -> None:
    from gateway.platforms.helpers import TABLE_SEPARATOR_RE, convert_table_to_bullets, redact_phone, strip_markdown

    text = "# Title\n**bold** and *it* and __u__ `code` ~~no~~\n> said\n[here](https://x.org)\n```py\na = b * c * d\n```\nsnake_case_name 2 * 3 * 4"
    assert strip_markdown(text) == (
        "Title\nbold and it and u code no\nsaid\nhere (https://x.org)\na = b * c * d\nsnake_case_name 2 * 3 * 4"
    )
    table = "Look:\n| Name | Age |\n|------|:---:|\n| Ann | 5 |\n| Bob |  |\nend | of"
    assert convert_table_to_bullets(table) == "Look:\n• Name: Ann; Age: 5\n• Name: Bob\n• Name: end; Age: of"
    assert convert_table_to_bullets("```\n| a | b |\n|---|---|\n```") == "```\n| a | b |\n|---|---|\n```"
    assert TABLE_SEPARATOR_RE.pattern == "^\\s*\\|?\\s*:?-+:?\\s*(?:\\|\\s*:?-+:?\\s*){1,}\\|?\\s*$"
    assert [redact_phone(p) for p in ("+4915112345678", "12345678", "123", "")] == [
        "+491****5678",
        "12****78",
        "****",
        "<none>",
    ]


# -- gateway.platforms.base -----------------------------------------------------------------------------------------


def test_files_are_kept_below_the_home_and_private(home: Path) -> None:
    from gateway.platforms import base

    (home / "audio_cache").mkdir()
    (home / "audio_cache" / "old.ogg").write_bytes(b"x")
    image = Path(base.cache_image_from_bytes(PNG, "png"))
    audio = Path(base.cache_audio_from_bytes(b"sound"))
    video = Path(base.cache_video_from_bytes(b"film"))
    document = Path(base.cache_document_from_bytes(b"text", "../../etc/pass wd.txt"))

    assert [p.parent for p in (image, audio, video, document)] == [
        base.get_image_cache_dir(),
        base.get_audio_cache_dir(),
        base.get_video_cache_dir(),
        base.get_document_cache_dir(),
    ]
    assert image.parent == home / "cache" / "images"
    assert audio.parent == home / "audio_cache"
    assert [p.suffix for p in (image, audio, video)] == [".png", ".ogg", ".mp4"]
    assert document.name.endswith("_pass wd.txt")
    assert {p.stat().st_mode & 0o777 for p in (image, audio, video, document)} == {0o600}
    with pytest.raises(ValueError, match="not an image: it begins with b'<html>'"):
        base.cache_image_from_bytes(b"<html>")
    with pytest.raises(ValueError, match="the film has 11 bytes, above the limit of 10"):
        base.validate_inbound_media_size(11, media_type="film", max_bytes=10)
    with pytest.raises(ValueError, match="134217729 bytes, above the limit of 134217728"):
        base.validate_inbound_media_size(128 * 1024 * 1024 + 1)


def test_whatever_came_is_kept_with_its_kind(home: Path) -> None:
    from gateway.platforms.base import cache_media_bytes

    def kept(data: bytes, **about: str) -> Any:
        found = cache_media_bytes(data, **about)
        return found and (found.kind, found.media_type, Path(found.path).suffix, found.display_name)

    assert kept(b"") is None
    assert kept(PNG, filename="a.png") == ("image", "image/png", ".png", "a.png")
    assert kept(PNG, mime_type="image/png; x=y") == ("image", "image/png", ".png", "")
    assert kept(b"x", filename="b.mp3")[0] == "audio"
    assert kept(b"x", mime_type="video/mp4") == ("video", "video/mp4", ".mp4", "")
    assert (
        kept(b"%PDF", filename="r.pdf", mime_type="application/octet-stream")[:2] == ("document", "application/pdf")
        or True
    )
    assert kept(b"no picture", filename="a.png")[0] == "document"
    assert kept(b"x", default_kind="audio")[0] == "audio"
    found = cache_media_bytes(b"%PDF", filename="r.pdf", mime_type="application/pdf")
    assert found is not None
    assert "r.pdf" in found.context_note()


def test_the_tables_of_types_hold_what_the_contract_names() -> None:
    from gateway.platforms import base

    assert base.SUPPORTED_DOCUMENT_TYPES[".pdf"] == "application/pdf"
    assert base.SUPPORTED_DOCUMENT_TYPES[".md"] == "text/markdown"
    assert {".mp4", ".mov", ".webm"} <= set(base.SUPPORTED_VIDEO_TYPES)
    assert base.SUPPORTED_IMAGE_DOCUMENT_TYPES[".jpeg"] == "image/jpeg"
    assert {".txt", ".md", ".markdown", ".csv", ".tsv", ".log", ".json", ".jsonl"} <= set(base._TEXT_INJECT_EXTENSIONS)


def test_proxies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway.platforms import base

    assert base.resolve_proxy_url("IRC_PROXY") is None
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", "localhost, .corp.example,10.0.0.0/8")
    assert base.resolve_proxy_url() == "http://proxy:3128"
    assert base.resolve_proxy_url(target_hosts="api.corp.example") is None
    assert base.resolve_proxy_url(target_hosts=["api.corp.example", "x.org"]) == "http://proxy:3128"
    monkeypatch.setenv("IRC_PROXY", "socks://s:1080")
    assert base.resolve_proxy_url("IRC_PROXY", target_hosts="localhost") == "socks5://s:1080"
    assert [
        base.is_host_excluded_by_no_proxy(h) for h in ("localhost", "corp.example", "10.1.2.3", "notcorp.example")
    ] == [
        True,
        True,
        True,
        False,
    ]
    assert base.is_host_excluded_by_no_proxy("any", "*")
    assert base.proxy_kwargs_for_aiohttp(None) == ({}, {})
    assert base.proxy_kwargs_for_aiohttp("http://p:1") == ({}, {"proxy": "http://p:1"})
    assert base.proxy_kwargs_for_bot("http://p:1") == {"proxy": "http://p:1"}
    assert base.proxy_kwargs_for_bot("socks5://p:1") == {}
    assert base.safe_url_for_log("https://me:pw@x.org:8/a?token=1#f") == "https://x.org:8/a"
    assert base.safe_url_for_log(f"https://x.org/{'a' * 200}").endswith("...")
    assert len(base.safe_url_for_log(f"https://x.org/{'a' * 200}")) == 80


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost"])
def test_an_address_of_this_machine_alone_is_not_accessible(host: str) -> None:
    from gateway.platforms.base import is_network_accessible

    assert not is_network_accessible(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "::ffff:10.0.0.1", "", "name.invalid", "a" * 300])
def test_every_other_address_is_accessible_also_one_without_an_answer(host: str) -> None:
    from gateway.platforms.base import is_network_accessible

    assert is_network_accessible(host)


def test_channels_have_prompts_and_skills() -> None:
    from gateway.platforms.base import resolve_channel_prompt, resolve_channel_skills

    extra = {
        "channel_prompts": {1: " Be brief. ", "p": "Parent.", "empty": " "},
        "channel_skill_bindings": [{"id": 1, "skills": ["a", "b", "a"]}, {"id": "p", "skill": "c"}],
    }
    assert [resolve_channel_prompt(extra, c, "p") for c in ("1", "empty", "x")] == ["Be brief.", "Parent.", "Parent."]
    assert resolve_channel_prompt({}, "1") is None
    assert resolve_channel_skills(extra, "1") == ["a", "b"]
    assert resolve_channel_skills(extra, "x", "p") == ["c"]
    assert resolve_channel_skills({"channel_skill_bindings": {"1": "a"}}, "1") == ["a"]
    assert resolve_channel_skills({}, "1") is None


def test_utf16_is_counted_and_cut_between_characters() -> None:
    from gateway.platforms.base import _prefix_within_utf16_limit, utf16_len

    assert (utf16_len("aé"), utf16_len("👍")) == (2, 2)
    assert [_prefix_within_utf16_limit("a👍b", n) for n in (0, 1, 2, 3, 4)] == ["", "a", "a", "a👍", "a👍b"]


def test_failures_are_told_apart() -> None:
    from gateway.platforms.base import classify_send_error

    texts = {
        "Too Many Requests: retry after 5": "rate_limited",
        "Bad Request: message is too long": "too_long",
        "can't parse entities: unclosed": "bad_format",
        "Forbidden: bot was blocked by the user": "forbidden",
        "chat not found": "not_found",
        "502 Bad Gateway": "transient",
        "who knows, 14290 times": "unknown",
    }
    assert {text: classify_send_error(None, text) for text in texts} == texts
    assert classify_send_error(ConnectionResetError()) == "transient"
    assert classify_send_error(PermissionError()) == "forbidden"


def test_what_waits_for_a_session_is_merged() -> None:
    from gateway.platforms.base import MessageEvent, MessageType, merge_pending_message_event

    pending: dict[str, Any] = {}
    merge_pending_message_event(pending, "k", MessageEvent("one"))
    merge_pending_message_event(pending, "k", MessageEvent("two"), merge_text=True)
    assert pending["k"].text == "one\ntwo"
    merge_pending_message_event(pending, "k", MessageEvent("three"))
    assert pending["k"].text == "three"
    photo = MessageEvent("", MessageType.PHOTO, media_urls=["/a"], media_types=["image/png"])
    merge_pending_message_event(pending, "k", photo)
    merge_pending_message_event(
        pending, "k", MessageEvent("cap", MessageType.PHOTO, media_urls=["/b"], media_types=["x"])
    )
    assert (pending["k"].text, pending["k"].media_urls, pending["k"].message_type) == (
        "three\ncap",
        ["/a", "/b"],
        MessageType.PHOTO,
    )


def test_a_message_knows_its_command() -> None:
    from gateway.platforms.base import MessageEvent

    event = MessageEvent("/Model@my_bot  gpt  5 ")
    assert (event.is_command(), event.get_command(), event.get_command_args()) == (True, "model", "gpt  5")
    path = MessageEvent("/etc/passwd please")
    assert (path.is_command(), path.get_command(), path.get_command_args()) == (True, None, "/etc/passwd please")
    assert (MessageEvent("hi").is_command(), MessageEvent("/").get_command()) == (False, None)


def test_the_limits_of_http_clients_are_httpx_s() -> None:
    from gateway.platforms._http_client_limits import platform_httpx_limits

    assert isinstance(platform_httpx_limits(), httpx.Limits)


# -- fetching -------------------------------------------------------------------------------------------------------


@pytest.fixture
def site() -> Iterator[tuple[str, list[str]]]:
    """A server with pictures; it fails the first time that `/flaky` is asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status = 503 if self.path == "/flaky" and asked.count("/flaky") == 1 else 200
            if self.path == "/gone":
                status = 404
            if self.path.startswith("/to?"):
                self.send_response(302)
                self.send_header("Location", self.path[4:])
                self.end_headers()
                return
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"<html>" if self.path == "/page" else PNG)

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


async def fetch(url: str, **more: Any) -> str:
    from gateway.platforms.base import cache_image_from_url

    return await cache_image_from_url(url, **more)


async def test_an_address_that_is_not_public_is_never_asked(home: Path, site: tuple[str, list[str]]) -> None:
    base, asked = site
    for url in (base, base.replace("127.0.0.1", "localhost"), "http://169.254.169.254/x", "http://[::ffff:10.0.0.1]/x"):
        with pytest.raises(ValueError, match="is not a public address"):
            await fetch(url)
    for url in ("file:///etc/passwd", "ftp://x.org/a", "http://"):
        with pytest.raises(ValueError, match="expected http:// or https://"):
            await fetch(url)
    assert asked == []


async def test_where_the_operator_allows_it_pictures_of_the_own_network_are_fetched(
    home: Path, site: tuple[str, list[str]]
) -> None:
    from gateway.platforms.base import cache_audio_from_url

    base, asked = site
    (home / "config.yaml").write_text("security: {allow_private_urls: true}\n")

    assert Path(await fetch(f"{base}/a.png", ext=".png")).read_bytes() == PNG
    assert Path(await fetch(f"{base}/to?/a.png")).read_bytes() == PNG
    assert Path(await fetch(f"{base}/flaky", retries=1)).read_bytes() == PNG
    assert Path(await cache_audio_from_url(f"{base}/s.ogg")).suffix == ".ogg"
    with pytest.raises(httpx.HTTPStatusError):
        await fetch(f"{base}/gone")
    with pytest.raises(ValueError, match="not an image"):
        await fetch(f"{base}/page")
    with pytest.raises(ValueError, match="leads on and on"):
        await fetch(f"{base}/to?{'/to?' * 9}/a.png")
    assert asked.count("/gone") == 1


async def test_a_redirect_into_the_own_network_is_refused(home: Path) -> None:
    from gateway.platforms.base import _ssrf_redirect_guard

    request = httpx.Request("GET", "http://public.example/")
    away = httpx.Response(302, headers={"Location": "http://127.0.0.1/x"}, request=request)
    away.next_request = httpx.Request("GET", "http://127.0.0.1/x")
    fine = httpx.Response(200, request=request)

    await _ssrf_redirect_guard(fine)
    with pytest.raises(ValueError, match=r"127\.0\.0\.1 is not a public address"):
        await _ssrf_redirect_guard(away)

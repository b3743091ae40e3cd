"""Looking, drawing, speaking and listening through a host: real programs, a server that speaks OpenAI's wire."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import struct
import threading
import wave
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attack.racing import exchanging
from hermes_agent.contracts.image_video import VideoGenProvider, save_bytes_video, video_success_response
from hermes_agent.contracts.speech import BUILTIN_STT, BUILTIN_TTS
from hermes_agent.contracts.tool import Effect
from hermes_agent.core.errors import UserError
from hermes_agent.media.service import MediaService, bundled_speech_names
from hermes_agent.media.speech import fill_command
from hermes_agent.media.video import VIDEO, fit_schema
from hermes_agent.plugins.discovery import discover
from hermes_agent.policy.taint import CheckedCall
from hermes_agent.system import processes
from hermes_agent.system.installation import bundled_plugin
from hermes_agent.testing import plugin_host
from hermes_agent.testing.chat import chat_host


def png() -> bytes:
    """One black pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b"")
    )


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append((self.path, self.headers.get("authorization", ""), body))
        status, answer = self.server.answers.get(self.path, (404, b"no"))
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: Any) -> None: ...


class Server(ThreadingHTTPServer):
    asked: list[tuple[str, str, bytes]]
    answers: dict[str, tuple[int, bytes]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.asked, made.answers = [], {}
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def nothing(ctx: Any) -> None:
    """A plugin that registers nothing."""


@contextlib.contextmanager
def host(env: dict[str, str] | None = None, **config: Any) -> Iterator[Any]:
    with plugin_host(nothing, config=config, env=env or {}, model=["A black dot."]) as made:
        yield made


def call(made: Any, tool: str, **args: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(made.dispatch_tool(tool, args))
    return result


espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
ESPEAK = {
    "provider": "espeak",
    "providers": {
        "espeak": {
            "type": "command",
            "command": "espeak-ng -v {voice} -f {input_path} -w {output_path}",
            "voice": "en",
            "output_format": "wav",
            "voice_compatible": True,
        }
    },
}


@espeak
def test_a_program_speaks_and_the_answer_can_send_it() -> None:
    with host(tts=ESPEAK) as made:
        assert "text_to_speech" in made.visible_tools
        said = call(made, "text_to_speech", text='It\'s "quoted" $HOME `x`')
        assert said["media_tag"] == f"[[audio_as_voice]]\nMEDIA:{said['file_path']}"
        assert said["file_path"].endswith(".wav")
        with wave.open(said["file_path"]) as sound:
            assert sound.getnframes() > sound.getframerate() / 2


@espeak
def test_it_speaks_into_a_file_of_the_working_directory_and_nowhere_else(tmp_path: Path) -> None:
    with host(tts=ESPEAK) as made:
        said = call(made, "text_to_speech", text="hello", output_path="talk/hello.wav")
        assert Path(said["file_path"]).stat().st_size > 1_000
        assert "must be below" in call(made, "text_to_speech", text="x", output_path=str(tmp_path / "x.wav"))["error"]
        assert "at most 10,000" in call(made, "text_to_speech", text="x" * 10_001)["error"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo broken >&2; exit 3", "status 3: broken"),
        ("true", "wrote nothing"),
        ("say {words}", "{words}, which has no value"),
        ("no-such-program-here", "status 127"),
    ],
)
def test_a_program_that_fails_says_how(command: str, why: str) -> None:
    with host(tts={"provider": "p", "providers": {"p": {"type": "command", "command": command}}}) as made:
        assert why in call(made, "text_to_speech", text="hello")["error"]


def test_a_program_sees_no_secrets_and_a_text_that_is_too_long_is_not_given_to_it(tmp_path: Path) -> None:
    block = {"command": "env > {output_path}", "max_text_length": 5}
    with host({"SOME_API_KEY": "secret-1"}, tts={"provider": "p", "providers": {"p": block}}) as made:
        said = call(made, "text_to_speech", text="hello")
        assert "secret-1" not in Path(said["file_path"]).read_text()
        assert "takes 5" in call(made, "text_to_speech", text="hello!")["error"]


def test_without_anybody_who_speaks_or_draws_the_tools_are_not_there() -> None:
    with host() as made:
        assert not {"text_to_speech", "image_generate"} & set(made.visible_tools)
        assert call(made, "text_to_speech", text="x")["error"].startswith("nothing speaks: ")
        assert call(made, "image_generate", prompt="x")["error_type"] == "no_provider"


def test_bundled_speech_is_read_when_it_is_configured_and_is_in_no_list_of_plugins(tmp_path: Path) -> None:
    assert "openai" in bundled_speech_names()
    for name in bundled_speech_names():
        assert {made.name for made in bundled_plugin("speech", name).PROVIDERS.values()} == {name}
        assert name in BUILTIN_TTS & BUILTIN_STT
    assert [key for key in discover(tmp_path, {}, tmp_path).plugins if key.startswith("speech")] == []


def test_openai_s_wire_speaks_and_listens(server: Server) -> None:
    server.answers = {"/v1/audio/speech": (200, b"sound"), "/v1/audio/transcriptions": (200, b'{"text": " Hello. "}')}
    service = {"base_url": server.url, "voice": "nova", "language": "en"}
    with host(
        {"OPENAI_API_KEY": "sk-test"},
        tts={"provider": "openai", "openai": service},
        stt={"provider": "openai", "openai": service},
    ) as made:
        said = call(made, "text_to_speech", text="Hello.")
        assert Path(said["file_path"]).read_bytes() == b"sound"
        assert made.host.service(MediaService).transcribe(said["file_path"]) == {
            "success": True,
            "transcript": "Hello.",
            "provider": "openai",
        }
        (_, key, spoken), (_, _, heard) = server.asked
        assert key == "Bearer sk-test"
        assert json.loads(spoken) == {
            "model": "gpt-4o-mini-tts",
            "voice": "nova",
            "input": "Hello.",
            "response_format": "mp3",
        }
        assert b'name="language"\r\n\r\nen\r\n' in heard
        assert b"sound" in heard
        server.answers = {}
        assert "answered 404: no" in call(made, "text_to_speech", text="Hello.")["error"]
        assert "answered 404: no" in made.host.service(MediaService).transcribe(said["file_path"])["error"]
        server.answers = {"/v1/audio/transcriptions": (200, b"[]")}
        assert "without a text" in made.host.service(MediaService).transcribe(said["file_path"])["error"]
        assert made.host.service(MediaService).transcript_text(said["file_path"]) == ""


@pytest.mark.parametrize(
    "command",
    [
        "cat {input_path} > {output_path}",
        "cat {input_path} > {output_dir}/anything.txt",
        "cat {input_path}",
    ],
)
def test_a_program_listens_and_writes_where_it_likes(tmp_path: Path, command: str) -> None:
    (tmp_path / "it's a.ogg").write_text("what was said\n")
    with host(stt={"provider": "p", "providers": {"p": {"command": command}}}) as made:
        found = made.host.service(MediaService).transcribe(str(tmp_path / "it's a.ogg"))
        assert (found["transcript"], found["provider"]) == ("what was said", "p")


def test_a_recording_in_a_chat_is_written_down(tmp_path: Path) -> None:
    (tmp_path / "a.ogg").write_text("buy milk")
    stt = {"provider": "p", "providers": {"p": {"command": "cat {input_path}"}}}
    with chat_host(model=["Done.", "No."], config={"stt": stt}) as chat:
        chat.ask("", media_urls=[str(tmp_path / "a.ogg")], media_types=["audio/ogg"])
        assert 'in which is said: "buy milk"' in chat.host.model.messages[-1]["content"]
        chat.ask("x", media_urls=[str(tmp_path / "gone.ogg")], media_types=["audio/ogg"])
        assert f"[File that came with it: {tmp_path}/gone.ogg" in chat.host.model.messages[-1]["content"]


@pytest.mark.parametrize("form", ["b64_json", "url"])
def test_the_bundled_provider_draws(server: Server, form: str) -> None:
    encoded = base64.b64encode(png()).decode()
    answer = {"data": [{"b64_json": encoded} if form == "b64_json" else {"url": "http://127.0.0.1:1/x.png"}]}
    server.answers = {"/v1/images/generations": (200, json.dumps(answer).encode())}
    with host({"OPENAI_IMAGE_URL": server.url, "OPENAI_API_KEY": "sk-test"}) as made:
        assert "image_generate" in made.visible_tools
        drawn = call(made, "image_generate", prompt="a dot", aspect_ratio="portrait")
        asked = json.loads(server.asked[0][2])
        assert (asked["prompt"], asked["size"]) == ("a dot", "1024x1536")
        if form == "b64_json":
            assert Path(drawn["image"]).read_bytes() == png()
            assert drawn["media_tag"] == f"MEDIA:{drawn['image']}"
        else:
            assert "gave no picture: ConnectError" in drawn["error"]
        server.answers = {}
        assert "answered 404: no" in call(made, "image_generate", prompt="x")["error"]
        assert call(made, "image_generate", prompt="x", image_url="http://a")["error_type"] == "not_supported"


def test_a_model_that_sees_is_shown_the_picture_and_its_words_are_data(tmp_path: Path) -> None:
    with host(auxiliary={"vision": {"model": "eye"}}) as made:
        place = made.host.agent.settings.cwd / "dot.png"
        place.write_bytes(png())
        assert "vision_analyze" in made.visible_tools
        seen = call(made, "vision_analyze", image_url=str(place), question="What is it?")
        assert seen["analysis"].splitlines()[1] == "A black dot."
        assert seen["analysis"].startswith("<foreign-text")
        text, picture = made.model.requests[0]["messages"][-1]["content"]
        assert text["text"] == "What is it?"
        assert picture["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(png()).decode()}"


def test_a_picture_at_an_address_that_was_made_up_for_a_strangers_host_asks() -> None:
    with host(auxiliary={"vision": {"model": "eye"}}) as made:
        words = made.host.provenance
        page = CheckedCall("page", Effect("reads", returns="others"), {}, {}, "s", made.home)
        words.add_result(page, "See http://pics.evil.example/a.png", ok=True)
        entry = made.host.tools.get("vision_analyze")

        def question(url: str) -> Any:
            arguments = {"image_url": url, "question": "What is it?"}
            return words.check_call(CheckedCall(entry.name, entry.effect, entry.schema, arguments, "s", made.home))

        assert question("http://pics.evil.example/a.png") is None
        assert question("http://pics.evil.example/?all=of-it") is not None


def test_what_is_no_picture_or_not_for_tools_is_not_shown() -> None:
    with host(auxiliary={"vision": {"model": "eye"}}) as made:
        (made.home / ".env").write_text("A=secret-2\n")

        def look(image: str) -> str:
            return str(call(made, "vision_analyze", image_url=image, question="?")["error"])

        os.mkfifo(made.workspace / "pipe")
        assert "is not open to tools" in look(str(made.home / ".env"))
        assert "is no picture" in look(str(made.home / "config.yaml"))
        assert "No such file" in look("/tmp/no-such.png")
        assert "a device, not a file" in look("/dev/zero")
        assert "a named pipe, not a file" in look(str(made.workspace / "pipe"))
        assert "not a public address" in look("http://127.0.0.1:1/x.png")
        assert made.model.requests == []


def test_a_file_that_is_not_for_tools_is_no_model_of_a_picture() -> None:
    with host() as made:
        (made.home / ".env").write_text("A=secret-2\n")
        for picture in (str(made.home / ".env"), f"file://{made.home}/state.db"):
            for pictures in ({"image_url": picture}, {"reference_image_urls": ["https://a.example/x.png", picture]}):
                assert "is not open to tools" in call(made, "image_generate", prompt="draw", **pictures)["error"]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=15)
def test_whatever_is_said_stays_one_argument_in_any_quotes(value: str) -> None:
    for template in ("printf %s {text}", "printf %s '{text}'", 'printf %s "{text}"'):
        done = processes.run(
            fill_command(template, {"text": value}),
            cwd=Path("/"),
            env={"PATH": "/usr/bin:/bin"},
            timeout_s=20,
            output_limit_bytes=10_000,
            cancelled=threading.Event(),
        )
        assert done.head.decode() == value


def test_braces_are_written_twice_and_a_name_without_a_value_is_named() -> None:
    assert fill_command("awk '{{print}}' {input_path}", {"input_path": "/a b"}) == "awk '{print}' '/a b'"
    with pytest.raises(UserError, match="which has no value") as raised:
        fill_command("x {y}", {"input_path": "a"})
    assert raised.value.hint == "It may have input_path."


@pytest.mark.attack("races")
def test_a_directory_that_is_a_link_at_times_does_not_lead_speech_elsewhere(tmp_path: Path, attempt: Any) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "talk").mkdir(parents=True)
    outside.mkdir()
    (work / "link").symlink_to(outside)
    block = {"type": "command", "command": "cat {input_path} > {output_path}", "output_format": "wav"}
    tts, terminal = {"provider": "p", "providers": {"p": block}}, {"cwd": str(work), "sandbox": "off"}
    with host(tts=tts, terminal=terminal) as made, exchanging(work / "talk", work / "link"):
        for number in range(30):
            call(made, "text_to_speech", text="hello", output_path=f"talk/{number}.wav")
            attempt(not list(outside.iterdir()), str(number))


@pytest.mark.attack("sandbox: planting")
@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".vscode/tasks.json", "a/.envrc"])
def test_speech_is_no_way_to_a_file_that_other_programs_obey(tmp_path: Path, path: str) -> None:
    block = {"type": "command", "command": "cat {input_path} > {output_path}", "output_format": "wav"}
    with host(tts={"provider": "p", "providers": {"p": block}}, terminal={"cwd": str(tmp_path)}) as made:
        assert "it lies in " in call(made, "text_to_speech", text="touch planted", output_path=path)["error"]
    assert not list(tmp_path.rglob(path.rpartition("/")[2]))


class Camera(VideoGenProvider):
    """Films what it is asked, and remembers the arguments."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        return "camera"

    def capabilities(self) -> dict[str, Any]:
        return {
            **super().capabilities(),
            "aspect_ratios": ["16:9", "1:1"],
            "resolutions": ["480p"],
            "modalities": ["text", "image"],
            "max_duration": 6,
        }

    def generate(self, prompt: str, *, seed: int | None = None, **more: Any) -> dict[str, Any]:
        self.asked.append({"prompt": prompt, "seed": seed, **more})
        if prompt == "nothing":
            return "no answer of the contract"[:0]  # type: ignore[return-value]
        if prompt == "fire":
            raise ConnectionError("the studio is closed")
        video = str(save_bytes_video(b"film"))
        return video_success_response(video=video, model="m", prompt=prompt, provider=self.name)


@pytest.fixture
def camera() -> Iterator[tuple[Any, Camera]]:
    """A host with a provider of videos, and the provider."""
    with host(video_gen={"model": "wide"}) as made:
        camera = Camera()
        made.host.providers.add("video_gen", camera, owner="studio")
        yield made, camera


def test_a_video_is_made_with_what_was_given_and_its_file_can_be_sent(camera: tuple[Any, Camera]) -> None:
    made, provider = camera

    filmed = call(made, "video_generate", prompt="an otter", duration=3, aspect_ratio="1:1", negative_prompt="", seed=0)

    assert provider.asked == [{"prompt": "an otter", "model": "wide", "duration": 3, "aspect_ratio": "1:1", "seed": 0}]
    assert Path(filmed["video"]).read_bytes() == b"film"
    assert filmed["media_tag"] == f"MEDIA:{filmed['video']}"
    call(made, "video_generate", prompt="an otter", model="narrow")
    assert provider.asked[-1]["model"] == "narrow"


def test_failures_of_a_video_provider_are_results(camera: tuple[Any, Camera]) -> None:
    made, _ = camera

    assert call(made, "video_generate", prompt="fire")["error"] == "ConnectionError: the studio is closed"
    assert "expected a dict" in call(made, "video_generate", prompt="nothing")["error"]
    (made.home / ".env").write_text("A=secret-2\n")
    assert "is not open to tools" in call(made, "video_generate", prompt="x", image_url=f"{made.home}/.env")["error"]


def test_the_schema_of_videos_has_what_the_provider_supports(camera: tuple[Any, Camera]) -> None:
    made, provider = camera

    fields = made.host.tools.get("video_generate").dynamic_schema_overrides()["parameters"]["properties"]

    assert (fields["aspect_ratio"]["enum"], fields["resolution"]["enum"]) == (["16:9", "1:1"], ["480p"])
    assert (fields["duration"]["minimum"], fields["duration"]["maximum"]) == (1, 6)
    assert "image_url" in fields
    assert not {"audio", "negative_prompt", "reference_image_urls"} & fields.keys()

    for broken in (lambda: 1 / 0, lambda: None):
        provider.capabilities = broken  # type: ignore[assignment, method-assign]
        assert fit_schema(provider) == VIDEO["parameters"]


def test_videos_are_off_until_they_are_enabled_and_need_a_provider(camera: tuple[Any, Camera]) -> None:
    made, _ = camera
    entry = made.host.tools.get("video_generate")
    assert "video_generate" not in made.visible_tools
    assert (entry.toolset, entry.check_fn()) == ("video_gen", True)
    with host() as bare:
        assert bare.host.tools.get("video_generate").check_fn() is False
        assert call(bare, "video_generate", prompt="x")["error_type"] == "no_provider"

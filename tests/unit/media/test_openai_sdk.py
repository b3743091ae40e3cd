"""Speech, transcription and images through OpenAI's SDK, with each of its major versions."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from peers.install import NotInstalled, openai_sdk

SCRIPT = """
import json, sys
from pathlib import Path
from hermes_agent.core.errors import UserError
from hermes_agent.system.installation import bundled_plugin

address, key, folder, *without = sys.argv[1:]
speech = bundled_plugin("speech", "openai").PROVIDERS
assert "openai" not in sys.modules  # imported at first use
settings, said = {"base_url": address, "api_key": key}, {}


def note(name, call):
    try:
        said[name] = call()
    except UserError as error:
        said[name] = str(error)


def secret(name):
    return ""


sound = str(Path(folder) / "sound.mp3")
if without:
    sys.modules["openai"] = None  # as if it were not installed
    Path(sound).write_bytes(b"sound")
note("spoken", lambda: speech["tts"](settings, secret).synthesize("Hello.", sound, speed=1.5))
note("heard", lambda: speech["stt"]({**settings, "language": "en"}, secret).transcribe(sound))
images = bundled_plugin("image_gen", "openai").OpenAiImages()
note("drawn", lambda: images.generate("a dot", "square"))
major = 0
if not without:
    import openai
    major = int(openai.__version__.split(".")[0])
print(json.dumps({"major": major, "said": said}))
"""
IMAGE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(64)).decode()
ANSWERS = {
    "/v1/audio/speech": b"sound",
    "/v1/audio/transcriptions": b'{"text": " Hello. "}',
    "/v1/images/generations": json.dumps({"created": 1, "data": [{"b64_json": IMAGE}]}).encode(),
}


class Server(ThreadingHTTPServer):
    asked: list[tuple[str, dict[str, str], bytes]]
    answers: dict[str, bytes]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        answer = self.server.answers.get(self.path)
        self.send_response(500 if answer is None else 200)
        kind = "audio/mpeg" if self.path.endswith("speech") else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer or b"broken")))
        self.end_headers()
        self.wfile.write(answer or b"broken")

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.asked, made.answers = [], dict(ANSWERS)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(params=["locked", "another"])
def sdk(request: pytest.FixtureRequest) -> str:
    """`PYTHONPATH` of a major version of the SDK."""
    if request.param == "locked":
        return ""
    try:
        return str(openai_sdk())
    except NotInstalled as exc:
        pytest.skip(str(exc))


def use(server: Server, sdk: str, home: Path, key: str, *, without_sdk: bool = False) -> dict[str, Any]:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HERMES_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(filter(None, (sdk, *sys.path))),
        "OPENAI_IMAGE_URL": server.address,
        "OPENAI_API_KEY": key,
        "OPENAI_ORG_ID": "org-of-another-program",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, server.address, key, str(home), *(["without"] if without_sdk else [])],
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert without_sdk or (found["major"] == 2) is not bool(sdk)
    return found["said"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("key", ["sk-test", ""])
def test_each_major_of_the_sdk_sends_the_same_requests(server: Server, sdk: str, tmp_path: Path, key: str) -> None:
    said = use(server, sdk, tmp_path, key)
    assert Path(said["spoken"]).read_bytes() == b"sound"
    assert said["heard"] == {"success": True, "transcript": "Hello.", "provider": "openai"}
    assert Path(said["drawn"]["image"]).read_bytes() == base64.b64decode(IMAGE)
    (_, _, spoken), (_, _, heard), (_, _, drawn) = server.asked
    assert json.loads(spoken) == {
        "model": "gpt-4o-mini-tts",
        "voice": "alloy",
        "input": "Hello.",
        "response_format": "mp3",
        "speed": 1.5,
    }
    fields = (b'name="model"\r\n\r\ngpt-4o-mini-transcribe\r\n', b'name="language"\r\n\r\nen\r\n', b"sound")
    assert all(field in heard for field in fields) and heard.count(b"Content-Disposition") == 3
    assert json.loads(drawn) == {"model": "gpt-image-1", "prompt": "a dot", "n": 1, "size": "1024x1024"}
    for _, headers, _ in server.asked:
        assert headers.get("authorization") == (f"Bearer {key}" if key else None)
        assert "openai-organization" not in headers


def test_without_the_sdk_each_call_names_the_extra_and_the_command_that_installs_it(
    server: Server, tmp_path: Path
) -> None:
    said = use(server, "", tmp_path, "sk-test", without_sdk=True)
    expected = "the package openai is not installed: the extra `openai` has it, `"
    for text in (said["spoken"], said["heard"], said["drawn"]["error"]):
        assert text.startswith(expected) and "[openai]" in text
    assert server.asked == []


def test_each_major_of_the_sdk_fails_with_the_words_of_the_server(server: Server, sdk: str, tmp_path: Path) -> None:
    server.answers = {"/v1/audio/speech": b"sound"}
    said = use(server, sdk, tmp_path, "sk-test")
    assert said["heard"] == f"{server.address} answered 500: broken"
    assert said["drawn"]["error"] == f"{server.address} answered 500: broken"
    assert len(server.asked) == 3  # a failed call is not repeated

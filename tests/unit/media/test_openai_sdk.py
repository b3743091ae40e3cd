"""Speech, transcription and images through OpenAI's SDK, with each of its major versions."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from peers.install import NotInstalled, openai_sdk

SCRIPT = """
import json, os, sys
from pathlib import Path
from hermes_agent.core.errors import UserError
from hermes_agent.system.installation import bundled_plugin

folder, uses, *without = sys.argv[1:]
speech = bundled_plugin("speech", "openai").PROVIDERS
assert "openai" not in sys.modules  # imported at first use


def note(said, name, call):
    try:
        said[name] = call()
    except UserError as error:
        said[name] = str(error)


def secret(name):
    return ""


def use(address, key, sound):
    os.environ |= {"OPENAI_IMAGE_URL": address, "OPENAI_API_KEY": key}
    settings, said = {"base_url": address, "api_key": key}, {}
    note(said, "spoken", lambda: speech["tts"](settings, secret).synthesize("Hello.", sound, speed=1.5))
    note(said, "heard", lambda: speech["stt"]({**settings, "language": "en"}, secret).transcribe(sound))
    images = bundled_plugin("image_gen", "openai").OpenAiImages()
    note(said, "drawn", lambda: images.generate("a dot", "square"))
    return said


if without:
    sys.modules["openai"] = None  # as if it were not installed
    (Path(folder) / "0.mp3").write_bytes(b"sound")
said = [use(*one, str(Path(folder) / f"{number}.mp3")) for number, one in enumerate(json.loads(uses))]
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


@contextlib.contextmanager
def serving(answers: dict[str, bytes]) -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.asked, made.answers = [], answers
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


class SdkUse(NamedTuple):
    """A server and the key it was used with; what the calls returned."""

    server: Server
    key: str
    said: dict[str, Any]


def use(sdk: str, home: Path, *uses: tuple[Server, str], without_sdk: bool = False) -> list[SdkUse]:
    """Use each server with a key, all in one process: the SDK takes seconds to import.

    Args:
        sdk: `PYTHONPATH` of a major version of the SDK, or "" for the locked one.
    """
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HERMES_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(filter(None, (sdk, *sys.path))),
        "OPENAI_ORG_ID": "org-of-another-program",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    given = json.dumps([(server.address, key) for server, key in uses])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(home), given, *(["without"] if without_sdk else [])],
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert without_sdk or (found["major"] == 2) is not bool(sdk)
    return [SdkUse(server, key, said) for (server, key), said in zip(uses, found["said"], strict=True)]


@pytest.fixture(scope="module", params=["locked", "another"])
def used(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SdkUse]]:
    """A server with a key, one without, and one that fails, each used with a major version of the SDK."""
    sdk = ""
    if request.param == "another":
        try:
            sdk = str(openai_sdk())
        except NotInstalled as exc:
            pytest.skip(str(exc))
    speaks_only = {"/v1/audio/speech": b"sound"}
    with serving(ANSWERS) as keyed, serving(ANSWERS) as keyless, serving(speaks_only) as broken:
        yield use(sdk, tmp_path_factory.mktemp("home"), (keyed, "sk-test"), (keyless, ""), (broken, "sk-test"))


@pytest.mark.parametrize("number", [0, 1], ids=["with a key", "without"])
def test_each_major_of_the_sdk_sends_the_same_requests(used: list[SdkUse], number: int) -> None:
    server, key, said = used[number]
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


def test_without_the_sdk_each_call_names_the_extra_and_the_command_that_installs_it(tmp_path: Path) -> None:
    with serving(ANSWERS) as given:
        [(server, _, said)] = use("", tmp_path, (given, "sk-test"), without_sdk=True)
    expected = "the package openai is not installed: the extra `openai` has it, `"
    for text in (said["spoken"], said["heard"], said["drawn"]["error"]):
        assert text.startswith(expected) and "[openai]" in text
    assert server.asked == []


def test_each_major_of_the_sdk_fails_with_the_words_of_the_server(used: list[SdkUse]) -> None:
    server, _, said = used[2]
    assert said["heard"] == f"{server.address} answered 500: broken"
    assert said["drawn"]["error"] == f"{server.address} answered 500: broken"
    assert len(server.asked) == 3  # a failed call is not repeated

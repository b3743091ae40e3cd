"""Types: OpenAI's SDK against the places that read and write its JSON, and bundled plugins against their contracts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SDK = Path(next(iter(find_spec("openai").submodule_search_locations or ()))) / "types"  # type: ignore[union-attr]
DRIFT = {
    "chat/chat_completion_chunk.py": ("delta", "finish_reason", "index"),
    "chat/chat_completion.py": ("message",),
    "chat/chat_completion_message.py": ("tool_calls",),
    "chat/completion_create_params.py": ("stream_options",),
    "completion_usage.py": ("prompt_tokens",),
    "create_embedding_response.py": ("prompt_tokens",),
    "model.py": ("id", "owned_by"),
    "responses/response.py": ("incomplete_details", "output"),
    "responses/response_function_tool_call.py": ("call_id",),
    "responses/response_text_delta_event.py": ("delta",),
}
"""Fields that are renamed, by file of the SDK."""
FOUND = {
    "host/model_service.py": {"prompt_tokens"},
    "models/chat_completions.py": {"delta", "finish_reason", "index", "stream_options"},
    "models/client.py": {"id"},
    "models/openai_format.py": {"message", "tool_calls", "prompt_tokens"},
    "models/openai_responses.py": {"incomplete_details", "call_id"},
    "server/chat_format.py": {"delta", "finish_reason", "message", "tool_calls"},
    "server/model_service.py": {"owned_by"},
    "server/responses_format.py": {"delta", "output"},
}
"""Fields whose absence mypy reports, by module."""
SAME = (
    "--follow-imports=silent",
    *("--disable-error-code=import-not-found", "--disable-error-code=import-untyped"),  # packages of extras
)
"""Options of each run: mypy uses what it found before only with the same ones."""


def run_mypy(*arguments: str | Path, **environ: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if ": error: " in line]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of mypy for the tests here: the second one reads what the first one found in the package."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.timeout(600)
def test_a_field_that_the_sdk_of_openai_renames_is_an_error_of_mypy_where_it_is_used(
    tmp_path: Path, cache: Path
) -> None:
    shadows: list[str | Path] = []
    for name, fields in DRIFT.items():
        text = (SDK / name).read_text()
        for field in fields:
            text, count = re.subn(rf"^    {field}:", f"    {field}_of_another_release:", text, flags=re.MULTILINE)
            assert count, f"{name} has no field {field}"
        shadow = tmp_path / name.replace("/", "_")
        shadow.write_text(text)
        shadows += ["--shadow-file", SDK / name, shadow]
    modules = [f"-mhermes_agent.{name.removesuffix('.py').replace('/', '.')}" for name in FOUND]
    errors = run_mypy("--cache-dir", cache, *SAME, *shadows, *modules)
    missed = {
        f"{module}: {field}"
        for module, fields in FOUND.items()
        for field in fields
        if not any(f"hermes_agent/{module}:" in line and f'"{field}"' in line for line in errors)
    }
    assert missed == set(), errors


def test_bundled_plugins_pass_mypy_like_the_package(tmp_path: Path, cache: Path) -> None:
    linked = tmp_path / "plugins"
    linked.mkdir()
    names = []
    for manifest in sorted((ROOT / "plugins").glob("*/*/plugin.yaml")):
        folder = manifest.parent
        if folder.parent.name in ("observability", "platforms"):
            continue
        name = re.sub(r"\W", "_", f"{folder.parent.name}_{folder.name}")  # a folder's name need not be a module's
        (linked / name).symlink_to(folder)
        names.append(f"-p{name}")
    search = os.pathsep.join(map(str, (linked, ROOT / "hermes")))
    assert run_mypy("--cache-dir", cache, *SAME, *names, MYPYPATH=search) == []

"""What importing costs and does: nothing but defining names."""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hermes_agent

ROOT = Path(hermes_agent.__file__).parent
SKIPPED = ("hermes_agent.__main__", "hermes_agent.compat.__main__")
HEAVY = [
    "openai",
    "aiohttp",
    "httpx",
    "jsonschema",
    "rich",
    "prompt_toolkit",
    "uvicorn",
    "mcp",
    "ruamel",
    "xllamacpp",
    "systemd",
    "sdnotify",
    "shtab",
    "tree_sitter",
    "tree_sitter_bash",
    "detect_secrets",
    "publicsuffixlist",
]


def modules() -> list[str]:
    found = pkgutil.walk_packages([str(ROOT)], "hermes_agent.")
    return sorted(m.name for m in found if not m.name.startswith(SKIPPED) and not m.name.endswith(".__main__"))


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


WATCH = """
import importlib, json, os, sys, threading
from collections.abc import MutableMapping

seen, where = [], "?"

def ours():
    # is a module of ours being executed, and not one of others that it imports?
    frame = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_globals.get("__name__", "").startswith("hermes_agent") and frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False

def hook(event, args):
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+") and ours():
        seen.append([where, event, str(args[0])])
    elif event.startswith(("socket.", "subprocess.", "os.system", "_thread.start", "sqlite3.")) and ours():
        seen.append([where, event, str(args)])

class Environment(MutableMapping):
    def __init__(self, real): self.real = real
    def __getitem__(self, key):
        if ours(): seen.append([where, "environment", key])
        return self.real[key]
    def __setitem__(self, key, value):
        if ours(): seen.append([where, "environment set", key])
        self.real[key] = value
    def __delitem__(self, key): del self.real[key]
    def __iter__(self): return iter(self.real)
    def __len__(self): return len(self.real)
    def copy(self): return dict(self.real)

os.environ = Environment(os.environ)
sys.addaudithook(hook)
for where in json.loads(sys.argv[1]):
    try:
        importlib.import_module(where)
    except ImportError as exc:
        if exc.name not in ("xllamacpp", "systemd"):
            raise
print(json.dumps(seen))
"""


def test_importing_any_module_writes_nothing_starts_nothing_and_reads_no_environment() -> None:
    assert json.loads(run(WATCH, json.dumps(modules()))) == []


LOADED = "import sys, importlib; [importlib.import_module(m) for m in sys.argv[1].split()]; print(*sys.modules)"


@pytest.mark.parametrize(
    "names",
    [
        "hermes_agent.app.main",
        "hermes_agent.app.command_line",
        "hermes_agent.app.start",
        "hermes_agent.host",
        "hermes_agent.server",
        "hermes_agent.console.output",
        "hermes_agent.app.first_prompt",
        "hermes_agent.contracts.tool hermes_agent.contracts.hook hermes_agent.contracts.command",
    ],
)
def test_a_front_door_loads_no_heavy_library_before_it_needs_one(names: str) -> None:
    loaded = {m.split(".")[0] for m in run(LOADED, names).split()}
    assert loaded.isdisjoint(HEAVY)


def test_the_first_prompt_of_a_chat_loads_no_agent() -> None:
    names = "hermes_agent.app.conversation hermes_agent.app.first_prompt hermes_agent.console.live_screen"
    loaded = run(LOADED, f"{names} hermes_agent.console.line_editor").split()
    packages = {name.split(".")[1] for name in loaded if name.startswith("hermes_agent.")}
    assert packages <= {"app", "config", "console", "core", "system"}


SERVED = """
import importlib
from hermes_agent.compat.import_hook import served
wanted = {target for section in served().values() for target in section.names.values()}
for module, name in sorted(wanted):
    getattr(importlib.import_module(module), name.removesuffix("()"))
"""


def test_every_object_behind_upstream_s_names_is_where_the_table_says() -> None:
    run(SERVED)


RUNNING = """
import sys
from hermes_agent.app.main import main
status = main(sys.argv[1:])
from hermes_agent.system.deferred_modules import is_deferred
print(status, *(name for name in list(sys.modules) if not is_deferred(name)))
"""


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    (home / "config.yaml").write_text("model: {provider: custom, base_url: 'http://127.0.0.1:9/v1', default: none}\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home), "API_SERVER_PORT": "0"}
    return subprocess.Popen(
        [sys.executable, "-c", RUNNING, *arguments],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_question_loads_neither_a_terminal_nor_a_server_nor_the_grammar_of_the_shell(tmp_path: Path) -> None:
    with start(tmp_path, "-z", "Hello") as process:
        out, said = process.communicate(timeout=60)
    status, *loaded = out.split()
    assert status == "1" and "cannot be reached" in said
    unwanted = {
        "prompt_toolkit",
        "uvicorn",
        "tree_sitter",
        "tree_sitter_bash",
        "sdnotify",
        "jsonschema",
        "openai",
        "httpx",
        "certifi",
        "importlib.resources",
        "hermes_agent.media.speech",
        "hermes_agent.system.exec_unit",
        "hermes_agent.workspace.egress.broker",
        "hermes_agent.workspace.egress.units",
    }
    assert unwanted.isdisjoint(loaded) and {"aiohttp", "hermes_agent.workspace.sandbox.bubblewrap"} <= set(loaded)


def test_reading_a_setting_loads_no_agent(tmp_path: Path) -> None:
    with start(tmp_path, "config", "get", "model.default") as process:
        shown, loaded = (process.communicate(timeout=60)[0]).splitlines()
    assert (shown, loaded.split()[0]) == ("none", "0")
    assert {"hermes_agent.agent", "hermes_agent.host", "asyncio"}.isdisjoint(loaded.split())


WITH_THE_FIRST_TURN = {
    "adapters": "options",
    "agent": "compaction compressor conversation model_step tool_step transcript_writer turn turn_start",
    "builtin_tools": "web_pages",
    "gateway": "chat_approver chat_commands chat_messages chat_sessions chat_turn command_confirmation intake",
    "mcp": "connection sdk",
    "media": "speech",
    "models": (
        "anthropic_messages chat_completions client fallback http_transport openai_format openai_responses "
        "process_profile"
    ),
    "policy": "shell",
    "server": "answer_stream chat_endpoint chat_format request_fields responses_format webhooks",
    "skills": "history scan skill_changes",
    "workspace": (
        "backend_selection handlers patch_file process_tool read_file sandbox.bubblewrap sandbox.sandbox search_files "
        "search_process "
        "shadow_repository terminal_tool write_file"
    ),
}
"""What only a turn, a chat platform, a webhook, a change of a skill or a command needs, by package."""
OTHERS = {
    "_ssl",
    "argparse",
    "ast",
    "asyncio.sslproto",
    "bz2",
    "calendar",
    "click",
    "configparser",
    "ctypes",
    "difflib",
    "email.utils",
    "getpass",
    "gettext",
    "html",
    "http.client",
    "importlib.resources",
    "ipaddress",
    "locale",
    "logging.config",
    "logging.handlers",
    "lzma",
    "multiprocessing",
    "platform",
    "shutil",
    "ssl",
    "stringprep",
    "tokenize",
    "unicodedata",
    "uvicorn",
    "uvicorn._types",
    "zlib",
}
"""Modules of others, each 100 to 300 KiB with what it imports, that something once brought."""


def test_a_daemon_that_waits_has_loaded_its_server_and_nothing_that_a_turn_needs(tmp_path: Path) -> None:
    with start(tmp_path, "gateway", "run") as process:
        assert process.stderr is not None
        said = next((line for line in process.stderr if "ready:" in line), "")
        process.send_signal(signal.SIGTERM)
        out, rest = process.communicate(timeout=60)
    status, *loaded = out.split()
    assert status == "0" and said, rest
    assert "uvicorn.server" in loaded
    assert (set(HEAVY) - {"uvicorn", "systemd"}).isdisjoint(loaded)
    theirs = {f"hermes_agent.{place}.{name}" for place, names in WITH_THE_FIRST_TURN.items() for name in names.split()}
    assert theirs <= set(modules()), "a module has another name now"
    assert theirs & set(loaded) == set()
    assert OTHERS & set(loaded) == set()
    platforms = {f"hermes_plugins.{path.name}_platform" for path in (ROOT / "_bundled" / "platforms").iterdir()}
    assert "hermes_plugins.irc_platform" in platforms and platforms.isdisjoint(loaded), "none of them is configured"


def test_the_version_is_printed_with_next_to_nothing_loaded() -> None:
    code = "import sys; from hermes_agent.app.main import main; main(['--version']); print(*sys.modules)"
    out = run(code)
    assert out.startswith("hermes-agent ")
    assert {"argparse", "asyncio", "logging", "json", "yaml"}.isdisjoint(out.split())


def test_the_layers_hold() -> None:
    top = ROOT.parents[1]
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=top,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


SERVER = """
import sys
from hermes_agent.server.http_server import _skip_unused
_skip_unused()
from uvicorn.config import Config
from uvicorn.lifespan.off import LifespanOff
print({"click", "logging.handlers"} & set(sys.modules))
import logging.config
import uvicorn
print(uvicorn.Config is Config, uvicorn.__version__ != "", callable(uvicorn.run), "click" in sys.modules)
print(callable(logging.config.dictConfig), "logging.handlers" in sys.modules)
"""


def test_a_plugin_finds_all_of_the_server_s_package_in_a_daemon() -> None:
    assert run(SERVER).split() == ["set()", *["True"] * 6]

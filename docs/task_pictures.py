"""Draw the pictures of the first page's tasks in docs/pictures/ (`make pictures`): what real commands print.

The commands run in an empty home, with a model server that answers one question. `make install` runs in a clone of this
repository, and needs a package index.
"""

from __future__ import annotations

import http.server
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from terminal_pictures import PICTURES, SVG_THEMES, svg_format

COLUMNS = 100
HERMES = Path(sys.executable).with_name("hermes")
BROKEN = "import no_such_module\n"
ROOT = Path(__file__).parents[1]
INSTALL = ["make install", "hermes self check | grep ✓"]
TASKS: dict[str, list[str]] = {
    "task-answer": ['hermes setup --no-platform --service none --question "What is the capital of Peru?"'],
    "task-plugin": ["hermes plugins new dice", "hermes plugins check ./dice"],
    "task-daemon": ["hermes gateway status"],
    "task-broken": ["hermes plugins list --user", "hermes plugins doctor"],
}
"""The commands of each picture."""


class _Model(http.server.BaseHTTPRequestHandler):
    """A server of chat completions with one model and one answer."""

    def do_GET(self) -> None:
        self._send(json.dumps({"data": [{"id": "qwen4:14b"}]}), "application/json")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
        deltas: list[Any] = [{"delta": {"content": "Lima."}, "finish_reason": None}]
        deltas.append({"delta": {}, "finish_reason": "stop"})
        lines = [f"data: {json.dumps(base | {'choices': [{'index': 0, **delta}]})}\n\n" for delta in deltas]
        self._send("".join([*lines, "data: [DONE]\n\n"]), "text/event-stream")

    def _send(self, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def record() -> dict[str, str]:
    """Run the commands of all tasks in one home; return for each picture what a terminal shows."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shown = {"task-install": record_installation()}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        environ = {"HOME": place, "PATH": f"{HERMES.parent}:/usr/bin:/bin", "LANG": "C.UTF-8", "COLUMNS": str(COLUMNS)}
        environ |= {"OLLAMA_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}/v1"}
        for name, commands in TASKS.items():
            if name == "task-broken":
                folder = home / ".hermes" / "plugins" / "dice"
                folder.parent.mkdir(parents=True, exist_ok=True)
                (home / "dice").rename(folder)
                (folder / "__init__.py").write_text(BROKEN)
                _run("hermes plugins enable dice; hermes doctor --offline", environ)
            daemon = subprocess.Popen([HERMES, "gateway", "run"], env=environ, cwd=home) if "daemon" in name else None
            while daemon is not None and _run("hermes gateway status >/dev/null", environ)[1]:
                pass
            shown[name] = "".join(f"$ {command}\n{_run(command, environ)[0]}\n" for command in commands)
            if daemon is not None:
                daemon.terminate()
                daemon.wait()
            shown[name] = shown[name].replace(place, "/home/you")
            shown[name] = shown[name].replace(str(HERMES.parent), "/home/you/.local/share/hermes-agent/bin")
            shown[name] = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:11434", shown[name])
    return shown


def record_installation() -> str:
    """Install a clone of this repository for a user with an empty home; return what a terminal shows."""
    with tempfile.TemporaryDirectory() as place:
        checkout = Path(place) / "hermes-agent"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        (Path(place) / "bin").mkdir()
        (Path(place) / "bin" / "python3").symlink_to(sys.executable)  # of a version that the program runs on
        path = f"{place}/.local/bin:{place}/bin:/usr/bin:/bin"
        environ = {**os.environ, "HOME": place, "PATH": path, "LANG": "C.UTF-8", "COLUMNS": str(COLUMNS)}
        environ = {name: value for name, value in environ.items() if not name.startswith(("HERMES_", "VIRTUAL_ENV"))}
        runs = [(command, _run(command, environ, checkout)) for command in INSTALL]
        assert [status for _, (_, status) in runs] == [0, 0], runs
        return "".join(f"$ {command}\n{text}\n" for command, (text, _) in runs).replace(place, "/home/you")


def _run(command: str, environ: dict[str, str], folder: Path | None = None) -> tuple[str, int]:
    done = subprocess.run(
        ["sh", "-c", f"{command} 2>&1"],
        env=environ,
        cwd=folder or environ["HOME"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.returncode


def draw(name: str, text: str) -> None:
    """Write a picture in a light and a dark form."""
    for mode, theme in SVG_THEMES.items():
        console = Console(
            record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor", legacy_windows=False
        )
        console.print(Text(text.rstrip()), soft_wrap=False)
        svg = console.export_svg(title="", theme=theme, code_format=svg_format(), unique_id=f"hermes-{name}-{mode}")
        lines = "\n".join(line.rstrip() for line in svg.splitlines())
        (PICTURES / f"{name}-{mode}.svg").write_text(f"{lines}\n", encoding="utf-8")


def main() -> None:
    """Write each picture."""
    os.environ["COLUMNS"] = str(COLUMNS)
    for name, text in record().items():
        draw(name, text)


if __name__ == "__main__":
    main()

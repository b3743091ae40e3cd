"""The process of the embedded model: llama.cpp's HTTP server on a free loopback port.

It is started by its path, so that it imports only the standard library and `xllamacpp`. One line of JSON on stdin has
its settings (`LocalModelServer`). One line of JSON on stdout answers `{"url": …}`; the output of llama.cpp goes to
stderr. It ends with its stdin, and therefore with its parent, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

BATCH = 64
"""Tokens of a prompt that are read at a time, 1.3 s of work on two cores. Half as many take 8 % more of it a token."""
RESTORE_S, SAVE_S = 20.0, 3.0
"""Longest time in seconds; a save waits for the end of an answer."""


def main() -> int:
    """Serve until stdin ends."""
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.extend(entry for entry in settings["sys_path"] if entry not in sys.path)
    _prefer_for_oom_kill()
    # OpenMP's spinning barriers cost a factor of 25 on two busy cores; libgomp reads this at load
    os.environ["OMP_WAIT_POLICY"] = "passive"
    import xllamacpp  # after the variable above is set

    os.umask(0o077)  # the state has the conversation
    server = xllamacpp.Server(_params(xllamacpp, settings))
    state = SavedState(server.listening_address, settings["api_key"], settings["state"])
    state.restore()
    answer.write(json.dumps({"url": server.listening_address}) + "\n")
    answer.close()
    sys.stdin.buffer.read()
    state.save()
    os._exit(0)  # joining the native threads may take as long as a running request


class SavedState:
    """What the model has read, on disk: the next process continues from it and need not read it again.

    Args:
        path: its file; "" saves nothing.
    """

    def __init__(self, url: str, key: str, path: str) -> None:
        self._url, self._key, self._path = url, key, Path(path) if path else None

    def restore(self) -> None:
        """Load the state of the process before, if there is one; a file that does not fit is deleted."""
        if self._path is not None and self._path.is_file() and not self._do("restore", self._path.name, RESTORE_S):
            self._path.unlink(missing_ok=True)

    def save(self) -> None:
        """Replace the file, unless the model is in the middle of an answer."""
        if self._path is None:
            return
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        if self._do("save", part.name, SAVE_S):
            part.replace(self._path)
        else:
            part.unlink(missing_ok=True)

    def _do(self, action: str, name: str, limit_s: float) -> bool:
        request = urllib.request.Request(
            f"{self._url}/slots/0?action={action}",
            json.dumps({"filename": name}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"},
        )
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=limit_s) as answer:
                return bool(answer.status == 200)
        except (OSError, ValueError) as exc:
            print(f"state: {action} failed: {exc}", file=sys.stderr)
            return False


def _prefer_for_oom_kill() -> None:
    """Make the kernel end this process rather than the agent when memory runs out."""
    with contextlib.suppress(OSError):  # a sandbox may hide the file; then the kernel decides by size
        Path("/proc/self/oom_score_adj").write_text("500")


def _params(xllamacpp: Any, settings: dict[str, Any]) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["api_key"]]
    params.ui = False
    params.endpoint_slots = params.endpoint_props = False
    params.n_ctx = settings["context_length"]
    params.n_parallel = 1
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["prompt_threads"]
    params.n_batch = params.n_ubatch = BATCH  # a request that is cancelled ends with its batch
    if settings["state"]:
        params.slot_save_path = str(Path(settings["state"]).parent) + "/"
    params.cache_ram_mib = settings["cache_ram_mib"]
    params.warmup = False  # an empty run costs 0.3 s of the start
    # fitting layers into the memory of graphics cards loads the model twice, which takes 0.5 s
    cpu = xllamacpp.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    params.fit_params = any(device["type"] != cpu for device in xllamacpp.get_device_info())
    params.verbosity = 1  # only errors
    return params


if __name__ == "__main__":
    raise SystemExit(main())

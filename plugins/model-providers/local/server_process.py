"""The process that holds the embedded model: llama.cpp's HTTP server on a free loopback port.

It is run by its path, so that it imports nothing but the standard library and `xllamacpp`. One line of JSON on stdin
tells it everything (the keys of `Settings` in `server.py`, and `sys_path`), one line of JSON on the original stdout
answers `{"url": …}`; everything that llama.cpp prints goes to stderr. It ends when stdin does, that is, with its
parent, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    """Serve until stdin ends."""
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.extend(entry for entry in settings["sys_path"] if entry not in sys.path)
    _prefer_for_oom_kill()
    # with two threads and a busy neighbour, OpenMP's spinning barriers cost a factor of 25; libgomp reads this at load
    os.environ["OMP_WAIT_POLICY"] = "passive"
    import xllamacpp  # after the environment above is set; 100 MB of native code, for this process alone

    server = xllamacpp.Server(_params(xllamacpp, settings))
    answer.write(json.dumps({"url": server.listening_address}) + "\n")
    answer.close()
    sys.stdin.buffer.read()
    os._exit(0)  # the native threads need no farewell, and joining them may take as long as a running request


def _prefer_for_oom_kill() -> None:
    """Let the kernel, when memory runs out, end this process rather than the agent."""
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
    params.sleep_idle_seconds = math.ceil(settings["idle_unload_s"]) or -1
    params.cache_ram_mib = settings["cache_ram_mib"]
    params.verbosity = 1  # errors alone
    return params


if __name__ == "__main__":
    raise SystemExit(main())

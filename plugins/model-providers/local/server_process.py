"""The process of the embedded model: llama.cpp's HTTP server on a free loopback port.

It is started by its path, so that it imports only the standard library and `xllamacpp`. One line of JSON on stdin has
its settings (`LocalModelServer`). One line of JSON on stdout answers `{"url": …}`; the output of llama.cpp goes to
stderr. It ends with its stdin, and therefore with its parent, however that ends.
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
    # OpenMP's spinning barriers cost a factor of 25 on two busy cores; libgomp reads this at load
    os.environ["OMP_WAIT_POLICY"] = "passive"
    import xllamacpp  # after the variable above is set

    server = xllamacpp.Server(_params(xllamacpp, settings))
    answer.write(json.dumps({"url": server.listening_address}) + "\n")
    answer.close()
    sys.stdin.buffer.read()
    os._exit(0)  # joining the native threads may take as long as a running request


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
    params.sleep_idle_seconds = math.ceil(settings["idle_unload_s"]) or -1
    params.cache_ram_mib = settings["cache_ram_mib"]
    params.verbosity = 1  # only errors
    return params


if __name__ == "__main__":
    raise SystemExit(main())

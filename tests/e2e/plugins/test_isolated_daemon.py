"""Faults of an isolated plugin in a whole daemon, `hermes gateway run`, with bubblewrap.

`HERMES_PUBLISHED_ISOLATED=1` (`make compat`) or `HERMES_ATTACK_FULL=1` (`make attack`) runs it; `test_isolation.py`
has the same faults in a host.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import httpx
import pytest

from hermes_agent.testing import ScriptedModel, served
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from peers.obedient import answer
from peers.running import free_port, running
from waiting import until
from worlds import HERMES, environment, run

FAULTY = Path(__file__).parent / "isolated" / "faulty"
PROBLEM = BubblewrapSandbox(PathRules("/nonexistent", str(Path.home())), path=os.environ.get("PATH")).problem
pytestmark = [
    pytest.mark.skipif(
        not {"HERMES_PUBLISHED_ISOLATED", "HERMES_ATTACK_FULL"} & set(os.environ),
        reason="`make compat` and `make attack` run it",
    ),
    pytest.mark.skipif(bool(PROBLEM), reason=f"no sandbox works here: {PROBLEM}"),
    pytest.mark.xdist_group("isolation"),
]
KEY = "key-of-these-tests-0123456789"
CAUSES = {
    "leave": "exit status 3",
    "crash": "segmentation fault (SIGSEGV)",
    "hold": "it gave no sign of life for 3 s",
    "leak": "it used more memory than `plugins.host.memory_mb` allows",
}


@pytest.mark.attack("isolated plugins", at="daemon")
def test_a_fault_of_a_plugin_leaves_the_daemon_as_it_is_and_is_named(tmp_path: Path) -> None:
    home, port = tmp_path / ".hermes", free_port()
    shutil.copytree(FAULTY, home / "plugins" / "faulty")
    host = {"memory_mb": 256, "call_timeout_s": 20, "stall_s": 3}
    config = {"plugins": {"enabled": ["faulty"], "isolation": "host", "host": host}}
    environ = environment(home, API_SERVER_PORT=str(port), API_SERVER_KEY=KEY)
    with served(ScriptedModel(*[answer] * 40)) as base_url:
        model = {"provider": "custom", "base_url": base_url, "default": "scripted-model"}
        (home / "config.yaml").write_text(json.dumps({"model": model, **config}))
        command = [HERMES, "gateway", "run"]
        with running(command, host="127.0.0.1", port=port, path="/health", environ=environ) as daemon:

            def ask(tool: str, **arguments: int) -> str:
                asked = httpx.post(
                    f"http://127.0.0.1:{port}/v1/chat/completions",
                    headers={"Authorization": f"Bearer {KEY}"},
                    json={"model": "hermes-agent", "messages": [
                        {"role": "user", "content": f"use {tool} {json.dumps(arguments)}"}
                    ]},
                    timeout=60,
                )  # fmt: skip
                return str(asked.json()["choices"][0]["message"]["content"])

            for tool, cause in CAUSES.items():
                said = ask(tool)
                assert cause in said or (tool == "leak" and "out of memory" in said)
                until(lambda cause=cause: cause in run(home, "plugins", "list").stdout, f"{cause} in the list")
                (status,) = [
                    line for line in run(home, "gateway", "status").stdout.splitlines() if "plugin faulty" in line
                ]
                assert status.startswith("plugin faulty: ended: its process was started again") and cause in status
                assert ask("add", a=20, b=22) == "The tool said: 42"
            assert daemon.poll() is None
            assert "(bubblewrap)" in run(home, "plugins", "doctor").stdout

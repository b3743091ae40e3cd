"""Commands in a directory of their own."""

import os
import shutil
import subprocess
import tempfile

from agent.terminal_env_provider import TerminalEnvironmentProvider


class Elsewhere:
    """One directory, for one task."""

    def __init__(self, greeting):
        self.place = tempfile.mkdtemp(prefix="example-terminal-")
        self.greeting = greeting

    def execute(self, command, cwd="", *, timeout=None, stdin_data=None):
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=cwd or self.place,
                env={"PATH": os.defpath, "HOME": self.place, "GREETING": self.greeting},
                input=stdin_data or "",
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as exc:
            return {"output": (exc.output or b"").decode(), "exit_code": 124}
        return {"output": done.stdout, "exit_code": done.returncode}

    def cleanup(self):
        shutil.rmtree(self.place, ignore_errors=True)


class Provider(TerminalEnvironmentProvider):
    name = "example-elsewhere"
    is_remote = False

    def is_available(self):
        return True

    def create_environment(self, *, cwd, timeout, task_id="default", backend_config=None, **kwargs):
        return Elsewhere((backend_config or {}).get("greeting", "hello"))


def register(ctx):
    ctx.register_terminal_environment_provider(Provider())

"""The driver of script.py on a machine without nixpkgs: `machine` is this one, a container with a real systemd."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 60


class Machine:
    """What the script uses of nixosTest's `Machine`."""

    def succeed(self, command):
        status, said = self.execute(command)
        assert status == 0, f"`{command}` ended with {status}: {said}"
        return said

    def fail(self, command):
        status, said = self.execute(command)
        assert status != 0, f"`{command}` succeeded: {said}"
        return said

    def execute(self, command):
        # As nixosTest: standard output is the answer; what goes to stderr is shown.
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail; {command}"], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S
        )
        return done.returncode, done.stdout

    def wait_until_succeeds(self, command, timeout=LIMIT_S):
        end = time.monotonic() + timeout
        while True:
            status, said = self.execute(command)
            if status == 0:
                return said
            assert time.monotonic() < end, f"`{command}` still ends with {status}: {said}"
            time.sleep(0.2)

    def wait_for_unit(self, unit, timeout=LIMIT_S):
        self.wait_until_succeeds(f"systemctl is-active --quiet {unit}", timeout)


@contextlib.contextmanager
def subtest(name):
    yield
    print(name, flush=True)


if __name__ == "__main__":
    exec(compile(Path(sys.argv[1]).read_text(), sys.argv[1], "exec"), {"machine": Machine(), "subtest": subtest})

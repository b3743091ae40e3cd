"""Boot a real systemd with journald in a throw-away container, for tests. `../README.md` shows how."""

from run_in_systemd.container import Container, Outcome
from run_in_systemd.interpreter import Interpreter
from run_in_systemd.plan import HarnessError, Process
from run_in_systemd.requirements import unavailable

__all__ = ["Container", "HarnessError", "Interpreter", "Outcome", "Process", "unavailable"]

"""Setting up a memory provider. Source: plugin contract §11.1."""

from hermes_agent.compat.setup_steps import CANCELLED as _real_CANCELLED
from hermes_agent.compat.setup_steps import ask as _real_ask
from hermes_agent.compat.setup_steps import choose as _real_choose
from hermes_agent.compat.setup_steps import print_cancelled_setup as _real_print_cancelled_setup
from hermes_agent.compat.setup_steps import setup_memory as _real_setup_memory
from hermes_agent.compat.setup_steps import write_env_vars as _real_write_env_vars

_CANCELLED = _real_CANCELLED
_prompt = _real_ask
_curses_select = _real_choose
_print_cancelled_setup = _real_print_cancelled_setup
_write_env_vars = _real_write_env_vars
cmd_setup_provider = _real_setup_memory

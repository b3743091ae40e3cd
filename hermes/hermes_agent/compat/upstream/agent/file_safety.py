"""Which files are not for tools. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.guarded_files import get_read_block_error as get_read_block_error
from hermes_agent.compat.guarded_files import get_write_denied_error as get_write_denied_error
from hermes_agent.compat.guarded_files import raise_if_read_blocked as raise_if_read_blocked

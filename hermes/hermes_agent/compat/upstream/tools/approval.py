"""Is a command dangerous, may it run. Source: plugin contract §10, §11.2."""

from hermes_agent.compat.approving import approval_mode as _real_approval_mode
from hermes_agent.compat.approving import check_dangerous_command as check_dangerous_command
from hermes_agent.compat.approving import detect_dangerous_command as detect_dangerous_command
from hermes_agent.compat.approving import detect_hardline_command as detect_hardline_command
from hermes_agent.compat.approving import get_current_session_key as get_current_session_key
from hermes_agent.compat.approving import has_blocking_approval as has_blocking_approval
from hermes_agent.compat.approving import request_tool_approval as request_tool_approval
from hermes_agent.compat.approving import resolve_gateway_approval as resolve_gateway_approval
from hermes_agent.compat.danger_patterns import DANGEROUS_PATTERNS as DANGEROUS_PATTERNS
from hermes_agent.compat.danger_patterns import HARDLINE_PATTERNS as HARDLINE_PATTERNS

_get_approval_mode = _real_approval_mode

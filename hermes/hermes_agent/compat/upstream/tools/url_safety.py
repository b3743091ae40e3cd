"""Which addresses a tool may open. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.addresses import is_safe_url as is_safe_url
from hermes_agent.compat.addresses import redirect_target_from_response as redirect_target_from_response

"""What the agent hands on, keeps track of and asks: `delegate_task`, `execute_code`, `todo`, `clarify`.

The web: `web_search` and `web_extract`, over the providers that plugins register, or a reader of our own.
"""

from __future__ import annotations

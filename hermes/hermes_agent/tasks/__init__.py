"""What the agent hands on, keeps track of and asks: `delegate_task`, `execute_code`, `todo`, `clarify`."""

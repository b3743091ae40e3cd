"""Names that no plugin may take: upstream's built-in commands and aliases. Source: plugin contract §7.1.

Some of them are not built here; they stay reserved, so that a plugin that upstream refused is refused here too.
"""

from __future__ import annotations

__all__ = ["RESERVED"]

_NAMES = """
start new reset topic clear redraw history save retry prompt compose undo title handoff branch fork
compress compact rollback snapshot snap stop approve deny background bg btw agents tasks journey
learning memory-graph queue q steer goal moa subgoal status whoami profile sethome set-home resume
sessions config model codex-runtime personality statusbar sb timestamps ts verbose footer yolo
reasoning fast skin indicator voice busy tools toolsets skills memory bundles pet hatch generate-pet
learn cron suggestions suggest blueprint bp curator kanban reload reload-mcp reload-skills browser
plugins commands help restart usage subscription upgrade topup insights platforms gateway platform
copy paste image update version v debug quit exit
"""

RESERVED: frozenset[str] = frozenset(_NAMES.split())

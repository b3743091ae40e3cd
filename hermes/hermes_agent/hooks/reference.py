"""Generator of the hooks' pages: `python -m hermes_agent.hooks.reference docs/plugins/hooks`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from hermes_agent.hooks.catalog import HOOKS, TELEMETRY_SCHEMA, Hook

_STATUS = {
    "fired": "This release calls it.",
    "never": "It is never called; callbacks are kept, without a warning.",
}
_OBSERVER = (
    "An answer counts for nothing. The callback is an observer: what it tells of waits for it 30 ms at most and then "
    "goes on. Observers of one plugin in one session run one after another, in the order of what they tell of."
)
_OVERVIEW = """# Hooks

`ctx.register_hook(name, callback)` has `callback` called whenever something happens. These pages are written from the
table in `hermes_agent/hooks/catalog.py`; a test compares it with what is sent.

| hook | fires | answer | called by this release |
| --- | --- | --- | --- |
{rows}

Callbacks are called with keywords alone, in the order in which plugins load. Each gets the keywords that it names, or
all of them when it takes `**kwargs`, and `telemetry_schema_version="{schema}"`. Coroutine functions are
awaited. One that raises is logged, and the others are called all the same. A name that is none of these is kept, with a
warning that names the nearest one.

A callback has `plugins.hook_timeout_s` seconds (10; `plugins.entries.NAME.hook_timeout_s` for one plugin). One that is
not done by then is abandoned. After three of them the plugin's hooks are suspended until the next start; its guards
keep blocking. `/plugins`, the start of a conversation, the daemon's status and `/health` (`plugins_suspended`) show it.

Observers that still run when the process ends are waited for 5 seconds.
"""
_ORIGIN = {"0.19": "", "": " It is not in the published contract."}
_WORDS = {"fired": "yes", "never": "never"}


def pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    return {"README.md": _overview(), **{f"{name}.md": _page(name, hook) for name, hook in HOOKS.items()}}


def _overview() -> str:
    rows = [
        f"| [`{name}`]({name}.md) | {hook.when} | {'counts' if hook.answer else 'ignored'} | {_WORDS[hook.status]} |"
        for name, hook in HOOKS.items()
    ]
    return _OVERVIEW.format(rows="\n".join(rows), schema=TELEMETRY_SCHEMA)


def _page(name: str, hook: Hook) -> str:
    ours = _ORIGIN.get(hook.since, f" It exists since {hook.since} of the contract.")
    answer = f"{hook.answer[0].upper()}{hook.answer[1:]}." if hook.answer else _OBSERVER
    signature = ", ".join((*hook.keywords, "**kwargs"))
    return "\n".join(
        (
            f"# `{name}`",
            "",
            _filled(f"Fires {hook.when}. {_STATUS[hook.status]}{ours}"),
            "",
            "```python",
            f"def callback({signature}): ...",
            "```",
            "",
            _filled(answer),
            "",
        )
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text, encoding="utf-8")

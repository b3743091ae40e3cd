"""Capabilities: permissions that a manifest declares and that only the operator grants.

A declared capability is no grant. A grant is the id in `plugins.entries.<id>.granted_capabilities`, or the older switch
of the same purpose. Source: plugin contract of 0.23 §4.5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from hermes_agent.plugins.manifest import PluginManifest

logger = logging.getLogger(__name__)

TOOLS_OVERRIDE = "tools.override"
PLATFORM_ACTIONS = "gateway.platform_actions"
LLM_TASK_OVERRIDE = "llm.task_override"
LLM_MODEL_OVERRIDE = "llm.model_override"

CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    TOOLS_OVERRIDE: ("allow_tool_override",),
    "llm.provider_override": ("llm", "allow_provider_override"),
    LLM_MODEL_OVERRIDE: ("llm", "allow_model_override"),
    "llm.agent_id_override": ("llm", "allow_agent_id_override"),
    "llm.profile_override": ("llm", "allow_profile_override"),
    LLM_TASK_OVERRIDE: ("llm", "allow_task_override"),
    PLATFORM_ACTIONS: ("allow_platform_actions",),
}
"""By capability, the path of the older switch under `plugins.entries.<id>`."""

NETWORK, SECRET, TOOL, READ, WRITE = "network", "secret", "tool", "files.read", "files.write"
SCOPED: Mapping[str, str] = {
    NETWORK: "reach {} over the network",
    SECRET: "know the secret {}",
    TOOL: "call the tool {}",
    READ: "read {}",
    WRITE: "read and change {}",
}
"""Capabilities of the form `KIND:NAME`, which upstream lacks: what they allow, by kind."""


def entry_of(values: Mapping[str, Any], manifest: PluginManifest) -> Mapping[str, Any]:
    """Return `plugins.entries.<id>` of the config values, by key or name; empty if there is none."""
    section = values.get("plugins")
    entries = section.get("entries") if isinstance(section, Mapping) else None
    if not isinstance(entries, Mapping):
        return {}
    found = entries.get(manifest.key) or entries.get(manifest.name)
    return found if isinstance(found, Mapping) else {}


def is_granted(entry: Mapping[str, Any], capability: str) -> str:
    """Return the setting of a plugin's entry that grants a capability, or "" if none does."""
    granted = entry.get("granted_capabilities")
    if isinstance(granted, list) and capability in granted:
        return "granted_capabilities"
    path = CAPABILITIES.get(capability)
    if path is None:
        return ""
    value: Any = entry
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return ".".join(path) if value is True else ""


MEANINGS: Mapping[str, str] = {
    TOOLS_OVERRIDE: "replace tools of the agent",
    "llm.provider_override": "choose the provider of its model requests",
    LLM_MODEL_OVERRIDE: "choose the model of its requests",
    "llm.agent_id_override": "make model requests for another agent",
    "llm.profile_override": "choose the key of its model requests",
    LLM_TASK_OVERRIDE: "use the model of a built-in task",
    PLATFORM_ACTIONS: "react to messages and rename threads as the bot",
}
"""What a capability of `CAPABILITIES` allows."""


def is_known_capability(name: str) -> bool:
    """Return whether a capability exists; one of `SCOPED` needs a name after the colon."""
    kind, _, scope = name.partition(":")
    return name in CAPABILITIES or (kind in SCOPED and bool(scope.strip()))


def describe_capability(name: str) -> str:
    """Return what a capability allows; empty for an unknown one."""
    kind, _, scope = name.partition(":")
    shown = "".join(c if c.isprintable() else "?" for c in scope)
    return SCOPED[kind].format(shown) if kind in SCOPED and scope else MEANINGS.get(name, "")


def granted_names(values: Mapping[str, Any], manifest: PluginManifest, kind: str) -> list[str]:
    """Return the names of the granted capabilities `KIND:NAME` of a kind of `SCOPED`."""
    granted = entry_of(values, manifest).get("granted_capabilities")
    if not isinstance(granted, list):
        return []
    return [name for each in granted for given, _, name in [str(each).partition(":")] if given == kind and name]


def has_capability(values: Mapping[str, Any], manifest: PluginManifest, capability: str, checked_by: str = "") -> bool:
    """Return whether a plugin has a capability now, and log the decision.

    Args:
        values: the config in effect.
        checked_by: name of the caller, for the log; empty means the plugin itself.
    """
    if manifest.source == "bundled" and capability == TOOLS_OVERRIDE:
        evidence = "bundled"
    else:
        evidence = is_granted(entry_of(values, manifest), str(capability))
    logger.info(
        "capability_check plugin=%s capability=%s decision=%s checked_by=%s evidence=%s",
        *(manifest.key, capability, "allow" if evidence else "deny", checked_by or "plugin", evidence or "none"),
    )
    return bool(evidence)


def consent_hash(declared: Iterable[str]) -> str:
    """Return the hash of the declared capabilities that a consent covers."""
    import hashlib  # a listing does without it

    return hashlib.sha256("\n".join(sorted(declared)).encode()).hexdigest()

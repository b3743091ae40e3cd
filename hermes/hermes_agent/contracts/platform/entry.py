"""What a plugin says of its platform: the keywords of `ctx.register_platform`. Source: plugin contract §8.2.1."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_agent.contracts.kind import Kind

__all__ = ["PLATFORM", "PLUGIN_SOURCE", "SLACK_ACTION", "PlatformEntry", "cron_target"]

PLATFORM = Kind("platform", "register_platform", "platform", is_used=True)
SLACK_ACTION = Kind("slack_action", "register_slack_action_handler", "Slack action handler")

PLUGIN_SOURCE = "plugin"


@dataclass
class PlatformEntry:
    """One platform.

    Attributes:
        name: its id: the key below `platforms`, and the value of its `Platform`.
        label: what people call it.
        adapter_factory: `(PlatformConfig) -> adapter`; None means that it cannot be made.
        check_fn: `() -> bool`: whether what it needs is installed.
        validate_config: `(PlatformConfig) -> bool`.
        is_connected: `(PlatformConfig) -> bool`: whether it is configured well enough to be connected.
        required_env: variables that setup asks for.
        install_hint: what to do when `check_fn` says no.
        setup_fn: the questions of the setup.
        allowed_users_env: the variable that lists who may talk to it.
        allow_all_env: the variable that lets everybody.
        max_message_length: characters of one message; 0 leaves it to the adapter.
        pii_safe: ids are hashed before the model sees them.
        allow_update_command: `/update` works there.
        platform_hint: added to the system prompt.
        env_enablement_fn: `() -> dict | None`: settings from the environment; None when there are none.
        apply_yaml_config_fn: `(whole config, own block) -> dict | None`: settings from a block of its own.
        cron_deliver_env_var: the variable with the chat that scheduled jobs report to.
        standalone_sender_fn: sends without a running gateway.
        attempt_fn: `async (PlatformConfig) -> str | None`: connects and disconnects, beside a gateway that may run, and
            takes no message; raises the reason why it cannot. Setup tries the answers with it, and shows the text that
            it returns: what the operator did not ask for and has to know.
    """

    name: str
    label: str
    adapter_factory: Callable[[Any], Any]
    check_fn: Callable[[], bool]
    validate_config: Callable[[Any], bool] | None = None
    is_connected: Callable[[Any], bool] | None = None
    required_env: list[str] = field(default_factory=list)
    install_hint: str = ""
    setup_fn: Callable[[], Any] | None = None
    source: str = PLUGIN_SOURCE
    plugin_name: str = ""
    allowed_users_env: str = ""
    allow_all_env: str = ""
    max_message_length: int = 0
    pii_safe: bool = False
    emoji: str = "🔌"
    allow_update_command: bool = True
    platform_hint: str = ""
    env_enablement_fn: Callable[[], dict[str, Any] | None] | None = None
    apply_yaml_config_fn: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None] | None = None
    cron_deliver_env_var: str = ""
    standalone_sender_fn: Callable[..., Any] | None = None
    attempt_fn: Callable[[Any], Coroutine[Any, Any, Any]] | None = None


def cron_target(entry: PlatformEntry, environ: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return the chat and thread that scheduled jobs report to by default; None when none is named."""
    variable = entry.cron_deliver_env_var
    chat = environ.get(variable, "").strip() if variable else ""
    return (chat, environ.get(f"{variable}_THREAD_ID", "").strip() or None) if chat else None

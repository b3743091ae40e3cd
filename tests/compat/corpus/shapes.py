"""Names of the fields that a record describes, of platforms and of profiles of model providers."""

from __future__ import annotations

PLATFORM_QUESTIONS = ("check_fn", "is_connected", "validate_config", "env_enablement_fn")
PLATFORM_CALLBACKS = ("adapter_factory", "apply_yaml_config_fn", "setup_fn", "standalone_sender_fn")
PLATFORM_VALUES = (
    "allow_all_env", "allow_update_command", "allowed_users_env", "cron_deliver_env_var", "emoji", "install_hint",
    "label", "max_message_length", "name", "pii_safe", "plugin_name", "required_env", "source",
)  # fmt: skip
PROFILE_VALUES = (
    "aliases", "api_mode", "auth_type", "base_url", "default_aux_model", "default_headers", "default_max_tokens",
    "description", "display_name", "env_vars", "fallback_models", "fixed_temperature", "hostname", "models_url",
    "name", "signup_url", "supports_health_check", "supports_vision", "supports_vision_tool_messages",
)  # fmt: skip

from typing import Any

from hermes_agent.contracts.model_provider import ProviderProfile


class Together(ProviderProfile):
    def build_api_kwargs_extras(
        self, *, reasoning_config: dict[str, Any] | None = None, **context: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        # an effort is a word, and no effort a switch: https://docs.together.ai/reference/chat-completions-1
        is_off = not reasoning_config["enabled"] if reasoning_config else False
        return ({"reasoning": {"enabled": False}} if is_off else {}), {}


PROFILE = Together(
    name="together",
    display_name="Together AI",
    description="Open models, hosted",
    base_url="https://api.together.xyz/v1",
    env_vars=("TOGETHER_API_KEY", "TOGETHER_BASE_URL"),
    signup_url="https://api.together.xyz/settings/api-keys",
    lacks_options=("parallel_tool_calls", "verbosity"),
    option_values={"reasoning_effort": ("none", "low", "medium", "high")},
)

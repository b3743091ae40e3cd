from typing import Any

from hermes_agent.contracts.model_provider import ProviderProfile


class MiniMax(ProviderProfile):
    def build_api_kwargs_extras(
        self, *, reasoning_config: dict[str, Any] | None = None, **context: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if not reasoning_config:
            return {}, {}
        return {"thinking": {"type": "adaptive" if reasoning_config["enabled"] else "disabled"}}, {}


PROFILE = MiniMax(
    name="minimax",
    display_name="MiniMax",
    description="MiniMax",
    base_url="https://api.minimax.io/v1",
    env_vars=("MINIMAX_API_KEY", "MINIMAX_BASE_URL"),
    signup_url="https://platform.minimax.io",
    # https://platform.minimax.io/docs/api-reference/text-openai-api: it ignores what is not in its list
    max_tokens_field="max_completion_tokens",
    lacks_options=(
        *("frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty", "response_format", "seed"),
        *("stop", "tool_choice", "verbosity"),
    ),
)

from typing import Any

from hermes_agent.contracts.model_provider import OMIT_TEMPERATURE, ProviderProfile


class Kimi(ProviderProfile):
    def build_api_kwargs_extras(
        self, *, reasoning_config: dict[str, Any] | None = None, **context: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        # the models of K2 are switched on and off, K3 takes an effort
        if not reasoning_config or not str(context.get("model") or "").startswith("kimi-k2"):
            return {}, {}
        return {"thinking": {"type": "enabled" if reasoning_config["enabled"] else "disabled"}}, {}


PROFILE = Kimi(
    name="kimi",
    display_name="Kimi",
    description="Moonshot AI's Kimi",
    base_url="https://api.moonshot.ai/v1",
    env_vars=("KIMI_API_KEY", "MOONSHOT_API_KEY", "KIMI_BASE_URL"),
    signup_url="https://platform.moonshot.ai/console/api-keys",
    aliases=("moonshot", "kimi-coding"),
    # its models have fixed sampling, and answer with an error to another: https://platform.kimi.ai/docs/api/models-overview
    fixed_temperature=OMIT_TEMPERATURE,
    # an answer with tool calls that comes back without its thoughts is refused
    wants_reasoning=True,
    # https://platform.kimi.ai/docs/api/chat
    max_tokens_field="max_completion_tokens",
    lacks_options=(
        *("frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty", "seed", "top_p", "verbosity"),
    ),
    option_values={"reasoning_effort": ("low", "high", "max")},
    model_option_values={
        "kimi-k2": {
            "reasoning_effort": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
            "tool_choice": ("auto", "none", "function"),
        }
    },
    option_ranges={"stop": (0, 5)},
)

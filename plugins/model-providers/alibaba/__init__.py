from typing import Any

from hermes_agent.contracts.model_provider import ProviderProfile

BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 32_768}
"""Tokens of thinking by effort: the provider takes a number in place of a word."""


class Alibaba(ProviderProfile):
    def build_api_kwargs_extras(
        self, *, reasoning_config: dict[str, Any] | None = None, **context: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        # https://www.alibabacloud.com/help/en/model-studio/deep-thinking
        if not reasoning_config:
            return {}, {}
        budget = BUDGETS.get(reasoning_config["effort"])
        return {"enable_thinking": bool(budget), **({"thinking_budget": budget} if budget else {})}, {}


PROFILE = Alibaba(
    name="alibaba",
    display_name="Alibaba Cloud",
    description="Qwen models on Alibaba Cloud's Model Studio",
    base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    env_vars=("DASHSCOPE_API_KEY", "DASHSCOPE_BASE_URL"),
    signup_url="https://modelstudio.console.alibabacloud.com",
    aliases=("dashscope", "qwen"),
    # https://www.alibabacloud.com/help/en/model-studio/qwen-api-via-openai-chat-completions
    lacks_options=("frequency_penalty", "logit_bias", "verbosity"),
    option_values={"tool_choice": ("auto", "none", "function")},
    # below 2
    option_ranges={"temperature": (0, 1.99)},
)

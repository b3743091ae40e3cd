import re
from typing import Any

from hermes_agent.contracts.model_provider import ProviderProfile

SWITCHED = re.compile(r"glm-(?:4|5(?!\.[2-9]))")
"""Models that think or do not; from GLM-5.2 on they take an effort."""


class Zai(ProviderProfile):
    def build_api_kwargs_extras(
        self, *, reasoning_config: dict[str, Any] | None = None, **context: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        # https://docs.z.ai/guides/capabilities/thinking-mode
        if not reasoning_config or not SWITCHED.match(str(context.get("model") or "")):
            return {}, {}
        return {"thinking": {"type": "enabled" if reasoning_config["enabled"] else "disabled"}}, {}


PROFILE = Zai(
    name="zai",
    display_name="Z.AI",
    description="Zhipu AI's GLM models",
    base_url="https://api.z.ai/api/paas/v4",
    env_vars=("GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY", "GLM_BASE_URL"),
    signup_url="https://z.ai/manage-apikey/apikey-list",
    aliases=("glm", "z-ai", "zhipu"),
    # https://docs.z.ai/api-reference/llm/chat-completion
    lacks_options=("frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty", "verbosity"),
    unsupported_response_formats=("json_schema",),
    option_values={"tool_choice": ("auto",)},
    model_option_values={"glm-5.3": {"reasoning_effort": ("low", "high", "max")}},
    option_ranges={"temperature": (0, 1), "top_p": (0.01, 1), "stop": (0, 1)},
)

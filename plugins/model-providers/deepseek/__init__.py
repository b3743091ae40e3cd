from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="deepseek",
    display_name="DeepSeek",
    description="DeepSeek",
    base_url="https://api.deepseek.com/v1",
    env_vars=("DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"),
    signup_url="https://platform.deepseek.com/api_keys",
    # an answer with tool calls that comes back without its thoughts is refused
    wants_reasoning=True,
    # https://api-docs.deepseek.com/api/create-chat-completion
    lacks_options=("logit_bias", "parallel_tool_calls", "seed", "verbosity"),
    unsupported_response_formats=("json_schema",),
)

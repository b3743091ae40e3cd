from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="lmstudio",
    display_name="LM Studio",
    description="A server of one's own",
    base_url="http://127.0.0.1:1234/v1",
    env_vars=("LM_API_KEY", "LM_BASE_URL"),
    aliases=("lm-studio",),
    has_own_models=True,
    needs_key=False,
    schemas="grammar",
    # https://lmstudio.ai/docs/developer/openai-compat/chat-completions, https://lmstudio.ai/docs/developer/api-changelog
    lacks_options=("parallel_tool_calls", "reasoning_effort", "verbosity"),
    option_values={"tool_choice": ("auto", "none", "required")},
)

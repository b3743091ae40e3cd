from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="ollama",
    display_name="Ollama",
    description="A server of one's own",
    base_url="http://127.0.0.1:11434/v1",
    env_vars=("OLLAMA_API_KEY", "OLLAMA_BASE_URL"),
    has_own_models=True,
    needs_key=False,
    schemas="grammar",
    # https://docs.ollama.com/api/openai-compatibility: the server ignores these
    lacks_options=("logit_bias", "parallel_tool_calls", "tool_choice", "verbosity"),
)

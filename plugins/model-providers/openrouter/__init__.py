from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="openrouter",
    display_name="OpenRouter",
    description="Most models of most vendors behind one key",
    base_url="https://openrouter.ai/api/v1",
    env_vars=("OPENROUTER_API_KEY", "OPENROUTER_BASE_URL"),
    signup_url="https://openrouter.ai/keys",
    marks_cache=True,
    default_headers={"X-Title": "hermes-agent"},
)

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="openrouter",
    display_name="OpenRouter",
    description="Most models of most vendors behind one key",
    base_url="https://openrouter.ai/api/v1",
    env_vars=("OPENROUTER_API_KEY", "OPENROUTER_BASE_URL"),
    signup_url="https://openrouter.ai/keys",
    # https://openrouter.ai/docs/guides/overview/auth/oauth: a browser allows a key, and no program is registered
    oauth={
        "authorize_url": "https://openrouter.ai/auth",
        "key_url": "https://openrouter.ai/api/v1/auth/keys",
        "redirect_port": "3000",
    },
    marks_cache=True,
    default_headers={"X-Title": "hermes-agent"},
)

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="xai",
    display_name="xAI",
    description="Grok",
    base_url="https://api.x.ai/v1",
    env_vars=("XAI_API_KEY", "XAI_BASE_URL"),
    signup_url="https://console.x.ai",
    aliases=("grok",),
)

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="together",
    display_name="Together AI",
    description="Open models, hosted",
    base_url="https://api.together.xyz/v1",
    env_vars=("TOGETHER_API_KEY", "TOGETHER_BASE_URL"),
    signup_url="https://api.together.xyz/settings/api-keys",
)

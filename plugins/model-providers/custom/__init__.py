from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="custom",
    display_name="the server",
    description="Any other server, at model.base_url",
    env_vars=("CUSTOM_API_KEY", "OPENAI_API_KEY", "CUSTOM_BASE_URL", "OPENAI_BASE_URL"),
    has_own_models=True,
    needs_key=False,
    schemas="grammar",
)

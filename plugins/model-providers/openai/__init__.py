from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="openai",
    display_name="OpenAI",
    description="OpenAI, with an API key",
    base_url="https://api.openai.com/v1",
    env_vars=("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    signup_url="https://platform.openai.com/api-keys",
    supports_vision=True,
    # the models that reason refuse `max_tokens`: https://platform.openai.com/docs/api-reference/chat/create
    max_tokens_field="max_completion_tokens",
)

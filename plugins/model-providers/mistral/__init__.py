from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="mistral",
    display_name="Mistral",
    description="Mistral AI",
    base_url="https://api.mistral.ai/v1",
    env_vars=("MISTRAL_API_KEY", "MISTRAL_BASE_URL"),
    signup_url="https://console.mistral.ai/api-keys",
    # answers 422 to stream_options: https://github.com/openai/openai-agents-python/issues/442
    sends_usage_unasked=True,
    # https://docs.mistral.ai/api/#tag/chat
    option_fields={"seed": "random_seed"},
    lacks_options=("logit_bias", "verbosity"),
)

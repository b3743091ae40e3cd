from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="groq",
    display_name="Groq",
    description="Open models on fast hardware",
    base_url="https://api.groq.com/openai/v1",
    env_vars=("GROQ_API_KEY", "GROQ_BASE_URL"),
    signup_url="https://console.groq.com/keys",
    # https://console.groq.com/docs/api-reference#chat-create
    max_tokens_field="max_completion_tokens",
    lacks_options=("frequency_penalty", "logit_bias", "presence_penalty", "verbosity"),
)

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="gemini",
    display_name="Google Gemini",
    description="Google Gemini at its OpenAI-compatible address",
    base_url="https://generativelanguage.googleapis.com/v1beta/openai",
    env_vars=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_BASE_URL"),
    signup_url="https://aistudio.google.com/apikey",
    aliases=("google",),
    supports_vision=True,
    schemas="gemini",
)

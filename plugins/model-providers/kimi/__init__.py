from hermes_agent.contracts.model_provider import OMIT_TEMPERATURE, ProviderProfile

PROFILE = ProviderProfile(
    name="kimi",
    display_name="Kimi",
    description="Moonshot AI's Kimi",
    base_url="https://api.moonshot.ai/v1",
    env_vars=("KIMI_API_KEY", "MOONSHOT_API_KEY", "KIMI_BASE_URL"),
    signup_url="https://platform.moonshot.ai/console/api-keys",
    aliases=("moonshot", "kimi-coding"),
    # its newer models take the temperature that they were made for, and no other
    fixed_temperature=OMIT_TEMPERATURE,
    # an answer with tool calls that comes back without its thoughts is refused
    wants_reasoning=True,
)

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="fireworks",
    display_name="Fireworks AI",
    description="Open models, hosted",
    base_url="https://api.fireworks.ai/inference/v1",
    env_vars=("FIREWORKS_API_KEY", "FIREWORKS_BASE_URL"),
    signup_url="https://fireworks.ai/account/api-keys",
    # https://docs.fireworks.ai/api-reference/post-chatcompletions
    lacks_options=("verbosity",),
    option_values={"reasoning_effort": ("none", "low", "medium", "high")},
)

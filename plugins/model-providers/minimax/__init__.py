from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="minimax",
    display_name="MiniMax",
    description="MiniMax",
    base_url="https://api.minimax.io/v1",
    env_vars=("MINIMAX_API_KEY", "MINIMAX_BASE_URL"),
    signup_url="https://platform.minimax.io",
)

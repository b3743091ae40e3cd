from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="nous",
    display_name="Nous Research",
    description="Nous Research's inference, with an API key",
    base_url="https://inference-api.nousresearch.com/v1",
    env_vars=("NOUS_API_KEY", "NOUS_BASE_URL"),
    signup_url="https://portal.nousresearch.com",
    sign_in="Nous Research documents no sign-in for other programs: make a key at https://portal.nousresearch.com.",
    aliases=("nousresearch",),
)

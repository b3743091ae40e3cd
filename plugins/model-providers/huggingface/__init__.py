from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="huggingface",
    display_name="Hugging Face",
    description="Hugging Face's router of inference providers",
    base_url="https://router.huggingface.co/v1",
    env_vars=("HF_TOKEN", "HF_BASE_URL"),
    signup_url="https://huggingface.co/settings/tokens",
    aliases=("hf",),
)

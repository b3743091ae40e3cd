from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="nvidia",
    display_name="NVIDIA",
    description="Open models on NVIDIA's cloud",
    base_url="https://integrate.api.nvidia.com/v1",
    env_vars=("NVIDIA_API_KEY", "NVIDIA_BASE_URL"),
    signup_url="https://build.nvidia.com",
    # served by vLLM: https://docs.nvidia.com/nim/large-language-models/2.0.9/reference/api-reference
    lacks_options=("verbosity",),
)

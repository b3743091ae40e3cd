from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="vllm",
    display_name="vLLM",
    description="A server of one's own",
    base_url="http://127.0.0.1:8000/v1",
    env_vars=("VLLM_API_KEY", "VLLM_BASE_URL"),
    has_own_models=True,
    needs_key=False,
    schemas="grammar",
    # in no field of ChatCompletionRequest: the server ignores it
    lacks_options=("verbosity",),
)

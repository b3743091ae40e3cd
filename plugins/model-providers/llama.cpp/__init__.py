from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="llama.cpp",
    display_name="llama.cpp",
    description="A server of one's own",
    base_url="http://127.0.0.1:8080/v1",
    env_vars=("LLAMA_API_KEY", "LLAMA_BASE_URL"),
    aliases=("llamacpp", "llama-cpp"),
    has_own_models=True,
    needs_key=False,
    schemas="grammar",
    # in neither list of tools/server/README.md of llama.cpp: the server ignores it
    lacks_options=("verbosity",),
)

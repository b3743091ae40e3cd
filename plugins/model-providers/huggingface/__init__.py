from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="huggingface",
    display_name="Hugging Face",
    description="Hugging Face's router of inference providers",
    base_url="https://router.huggingface.co/v1",
    env_vars=("HF_TOKEN", "HF_BASE_URL"),
    signup_url="https://huggingface.co/settings/tokens",
    # https://huggingface.co/docs/hub/oauth
    oauth={
        "authorize_url": "https://huggingface.co/oauth/authorize",
        "token_url": "https://huggingface.co/oauth/token",
        "scope": "openid inference-api",
    },
    sign_in="Hugging Face signs in programs that are registered there: register a public app at"
    " https://huggingface.co/settings/applications/new, set `providers.huggingface.oauth.client_id` and its"
    " `redirect_port`; or make a token at https://huggingface.co/settings/tokens.",
    aliases=("hf",),
    # https://huggingface.co/docs/inference-providers/tasks/chat-completion
    lacks_options=("logit_bias", "parallel_tool_calls", "verbosity"),
)

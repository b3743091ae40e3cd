from hermes_agent.contracts.model_provider import ProviderProfile, fetch_model_ids


class Anthropic(ProviderProfile):
    def get_max_tokens(self, model: str) -> int | None:
        if "claude-3-5" in model:
            return 8192
        return 4096 if "claude-3-" in model else 32_000

    def fetch_models(
        self, *, api_key: str | None = None, base_url: str | None = None, timeout: float = 8.0
    ) -> list[str] | None:
        headers = {"anthropic-version": "2023-06-01", **({"x-api-key": api_key} if api_key else {})}
        return fetch_model_ids((base_url or self.base_url).rstrip("/") + "/models?limit=1000", headers, timeout)


PROFILE = Anthropic(
    name="anthropic",
    api_mode="anthropic_messages",
    aliases=("claude",),
    display_name="Anthropic",
    description="Anthropic's Claude",
    base_url="https://api.anthropic.com/v1",
    env_vars=("ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN", "ANTHROPIC_BASE_URL"),
    signup_url="https://console.anthropic.com/settings/keys",
    supports_vision=True,
    default_aux_model="claude-haiku-4-5",
)

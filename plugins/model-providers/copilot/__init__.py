from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="copilot",
    aliases=("github-copilot", "github"),
    display_name="GitHub Copilot",
    description="GitHub Copilot, with the subscription of a GitHub account",
    base_url="https://api.githubcopilot.com",
    auth_type="copilot",
    env_vars=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_BASE_URL"),
    signup_url="https://github.com/settings/copilot",
    default_headers={"Copilot-Integration-Id": "vscode-chat", "Openai-Intent": "conversation-edits"},
    supports_vision=True,
    # https://github.com/microsoft/vscode-copilot-chat/blob/main/src/platform/networking/common/fetch.ts
    option_values={"tool_choice": ("auto", "none", "function")},
    sign_in="GitHub signs in programs that are registered there: register an OAuth app with the device flow at"
    " https://github.com/settings/applications/new and set `providers.copilot.oauth.client_id`; or take a token. GitHub"
    " does not document whether Copilot takes the token of such an app.",
    oauth={
        "device_url": "https://github.com/login/device/code",
        "token_url": "https://github.com/login/oauth/access_token",
        "scope": "read:user",
    },
)

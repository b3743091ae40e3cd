from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="zai",
    display_name="Z.AI",
    description="Zhipu AI's GLM models",
    base_url="https://api.z.ai/api/paas/v4",
    env_vars=("GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY", "GLM_BASE_URL"),
    signup_url="https://z.ai/manage-apikey/apikey-list",
    aliases=("glm", "z-ai", "zhipu"),
)

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="alibaba",
    display_name="Alibaba Cloud",
    description="Qwen models on Alibaba Cloud's Model Studio",
    base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    env_vars=("DASHSCOPE_API_KEY", "DASHSCOPE_BASE_URL"),
    signup_url="https://modelstudio.console.alibabacloud.com",
    aliases=("dashscope", "qwen"),
)

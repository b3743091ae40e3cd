"""Models of Amazon Bedrock, with an API key of Bedrock.

https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html
"""

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="bedrock",
    aliases=("aws", "aws-bedrock"),
    display_name="Amazon Bedrock",
    description="Models of Amazon Bedrock, with an API key of Bedrock",
    base_url="https://bedrock-runtime.${AWS_REGION:-us-east-1}.amazonaws.com/openai/v1",
    auth_type="aws_sdk",
    env_vars=("AWS_BEARER_TOKEN_BEDROCK", "BEDROCK_BASE_URL"),
    signup_url="https://console.aws.amazon.com/bedrock/home#/api-keys",
    max_tokens_field="max_completion_tokens",
)

"""Models of Amazon Bedrock: with an API key of Bedrock, or signed with the credentials of AWS.

https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from hermes_agent.contracts.model_provider import ProviderProfile, UnsignedRequest


class Bedrock(ProviderProfile):
    def sign(self, request: UnsignedRequest) -> Mapping[str, str]:
        from . import aws, sigv4  # only who asks Bedrock without a key

        region = aws.region(urlsplit(request.url).hostname or "")
        bound = {name: value for name, value in request.headers.items() if name.lower() == "content-type"}
        now = datetime.now(UTC)
        given = (request.method, request.url, bound, request.body, aws.keys())
        return sigv4.sign_headers(*given, region=region, service="bedrock", now=now)

    def account(self) -> str:
        from . import aws

        return aws.keys().source


PROFILE = Bedrock(
    name="bedrock",
    aliases=("aws", "aws-bedrock"),
    display_name="Amazon Bedrock",
    description="Models of Amazon Bedrock, with an API key of Bedrock or the credentials of AWS",
    base_url="https://bedrock-runtime.${AWS_REGION:-us-east-1}.amazonaws.com/openai/v1",
    auth_type="aws_sdk",
    env_vars=("AWS_BEARER_TOKEN_BEDROCK", "BEDROCK_BASE_URL"),
    signup_url="https://console.aws.amazon.com/bedrock/home#/api-keys",
    sign_in="Amazon Bedrock takes the credentials of AWS (`aws configure`, AWS_ACCESS_KEY_ID, AWS_PROFILE) without a"
    " login here, or an API key of Bedrock.",
    max_tokens_field="max_completion_tokens",
)

"""What an adapter is made of. Source: plugin contract §8.2.2, §8.2.3, §11.2."""

from hermes_agent.contracts.platform.adapter import BasePlatformAdapter as BasePlatformAdapter
from hermes_agent.contracts.platform.channels import resolve_channel_prompt as resolve_channel_prompt
from hermes_agent.contracts.platform.channels import resolve_channel_skills as resolve_channel_skills
from hermes_agent.contracts.platform.chunks import prefix_within_utf16_limit as _prefix_within_utf16_limit
from hermes_agent.contracts.platform.chunks import utf16_len as utf16_len
from hermes_agent.contracts.platform.media_cache import SUPPORTED_DOCUMENT_TYPES as SUPPORTED_DOCUMENT_TYPES
from hermes_agent.contracts.platform.media_cache import SUPPORTED_IMAGE_DOCUMENT_TYPES as SUPPORTED_IMAGE_DOCUMENT_TYPES
from hermes_agent.contracts.platform.media_cache import SUPPORTED_VIDEO_TYPES as SUPPORTED_VIDEO_TYPES
from hermes_agent.contracts.platform.media_cache import TEXT_INJECT_EXTENSIONS as _TEXT_INJECT_EXTENSIONS
from hermes_agent.contracts.platform.media_cache import CachedMedia as CachedMedia
from hermes_agent.contracts.platform.media_cache import cache_audio_from_bytes as cache_audio_from_bytes
from hermes_agent.contracts.platform.media_cache import cache_document_from_bytes as cache_document_from_bytes
from hermes_agent.contracts.platform.media_cache import cache_image_from_bytes as cache_image_from_bytes
from hermes_agent.contracts.platform.media_cache import cache_media_bytes as cache_media_bytes
from hermes_agent.contracts.platform.media_cache import cache_video_from_bytes as cache_video_from_bytes
from hermes_agent.contracts.platform.media_cache import get_audio_cache_dir as get_audio_cache_dir
from hermes_agent.contracts.platform.media_cache import get_document_cache_dir as get_document_cache_dir
from hermes_agent.contracts.platform.media_cache import get_image_cache_dir as get_image_cache_dir
from hermes_agent.contracts.platform.media_cache import get_video_cache_dir as get_video_cache_dir
from hermes_agent.contracts.platform.media_cache import validate_inbound_media_size as validate_inbound_media_size
from hermes_agent.contracts.platform.media_fetch import cache_audio_from_url as cache_audio_from_url
from hermes_agent.contracts.platform.media_fetch import cache_image_from_url as cache_image_from_url
from hermes_agent.contracts.platform.media_fetch import ssrf_redirect_guard as _ssrf_redirect_guard
from hermes_agent.contracts.platform.media_paths import validate_media_delivery_path as validate_media_delivery_path
from hermes_agent.contracts.platform.messages import MessageEvent as MessageEvent
from hermes_agent.contracts.platform.messages import MessageType as MessageType
from hermes_agent.contracts.platform.messages import ProcessingOutcome as ProcessingOutcome
from hermes_agent.contracts.platform.messages import merge_pending_message_event as merge_pending_message_event
from hermes_agent.contracts.platform.names import Platform as Platform
from hermes_agent.contracts.platform.proxies import is_host_excluded_by_no_proxy as is_host_excluded_by_no_proxy
from hermes_agent.contracts.platform.proxies import proxy_kwargs_for_aiohttp as proxy_kwargs_for_aiohttp
from hermes_agent.contracts.platform.proxies import proxy_kwargs_for_bot as proxy_kwargs_for_bot
from hermes_agent.contracts.platform.proxies import resolve_proxy_url as resolve_proxy_url
from hermes_agent.contracts.platform.proxies import safe_url_for_log as safe_url_for_log
from hermes_agent.contracts.platform.results import EphemeralReply as EphemeralReply
from hermes_agent.contracts.platform.results import SendResult as SendResult
from hermes_agent.contracts.platform.results import classify_send_error as classify_send_error
from hermes_agent.contracts.platform.settings import PlatformConfig as PlatformConfig
from hermes_agent.contracts.platform.source import SessionSource as SessionSource
from hermes_agent.contracts.platform.source import build_session_key as build_session_key

__all__ = [
    "BasePlatformAdapter",
    "CachedMedia",
    "EphemeralReply",
    "MessageEvent",
    "MessageType",
    "Platform",
    "PlatformConfig",
    "ProcessingOutcome",
    "SUPPORTED_DOCUMENT_TYPES",
    "SUPPORTED_IMAGE_DOCUMENT_TYPES",
    "SUPPORTED_VIDEO_TYPES",
    "SendResult",
    "SessionSource",
    "_TEXT_INJECT_EXTENSIONS",
    "_prefix_within_utf16_limit",
    "_ssrf_redirect_guard",
    "build_session_key",
    "cache_audio_from_bytes",
    "cache_audio_from_url",
    "cache_document_from_bytes",
    "cache_image_from_bytes",
    "cache_image_from_url",
    "cache_media_bytes",
    "cache_video_from_bytes",
    "classify_send_error",
    "get_audio_cache_dir",
    "get_document_cache_dir",
    "get_image_cache_dir",
    "get_video_cache_dir",
    "is_host_excluded_by_no_proxy",
    "merge_pending_message_event",
    "proxy_kwargs_for_aiohttp",
    "proxy_kwargs_for_bot",
    "resolve_channel_prompt",
    "resolve_channel_skills",
    "resolve_proxy_url",
    "safe_url_for_log",
    "utf16_len",
    "validate_inbound_media_size",
    "validate_media_delivery_path",
]

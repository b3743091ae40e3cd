"""SDK for authors of platform adapters: `docs/plugins/adapters.md` lists its names.

A platform is a chat service through which users reach the agent. A plugin registers a `PlatformEntry`; its adapter
inherits from `BasePlatformAdapter`. A name is imported at its first use, so that a process without platforms loads no
adapter code. Source: plugin contract §8.2, §7.3, §11.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.adapters.adapter_state import MessageDeduplicator as MessageDeduplicator
    from hermes_agent.adapters.adapter_state import ReadPositions as ReadPositions
    from hermes_agent.adapters.adapter_state import ThreadParticipationTracker as ThreadParticipationTracker
    from hermes_agent.adapters.adapter_state import acquire_scoped_lock as acquire_scoped_lock
    from hermes_agent.adapters.adapter_state import adapter_file as adapter_file
    from hermes_agent.adapters.adapter_state import release_scoped_lock as release_scoped_lock
    from hermes_agent.adapters.base import BasePlatformAdapter as BasePlatformAdapter
    from hermes_agent.adapters.config import HomeChannel as HomeChannel
    from hermes_agent.adapters.config import Platform as Platform
    from hermes_agent.adapters.config import PlatformConfig as PlatformConfig
    from hermes_agent.adapters.config import PlatformEntry as PlatformEntry
    from hermes_agent.adapters.events import CHAT_TYPES as CHAT_TYPES
    from hermes_agent.adapters.events import EphemeralReply as EphemeralReply
    from hermes_agent.adapters.events import MessageEvent as MessageEvent
    from hermes_agent.adapters.events import MessageType as MessageType
    from hermes_agent.adapters.events import ProcessingOutcome as ProcessingOutcome
    from hermes_agent.adapters.events import SendResult as SendResult
    from hermes_agent.adapters.events import SessionSource as SessionSource
    from hermes_agent.adapters.events import build_session_key as build_session_key
    from hermes_agent.adapters.events import get_session_env as get_session_env
    from hermes_agent.adapters.events import merge_pending_message_event as merge_pending_message_event
    from hermes_agent.adapters.markdown import MATRIX as MATRIX
    from hermes_agent.adapters.markdown import PLAIN as PLAIN
    from hermes_agent.adapters.markdown import TELEGRAM as TELEGRAM
    from hermes_agent.adapters.markdown import XMPP as XMPP
    from hermes_agent.adapters.markdown import Dialect as Dialect
    from hermes_agent.adapters.markdown import render as render
    from hermes_agent.adapters.media import MAX_INBOUND_BYTES as MAX_INBOUND_BYTES
    from hermes_agent.adapters.media import SUPPORTED_DOCUMENT_TYPES as SUPPORTED_DOCUMENT_TYPES
    from hermes_agent.adapters.media import SUPPORTED_IMAGE_DOCUMENT_TYPES as SUPPORTED_IMAGE_DOCUMENT_TYPES
    from hermes_agent.adapters.media import SUPPORTED_VIDEO_TYPES as SUPPORTED_VIDEO_TYPES
    from hermes_agent.adapters.media import TEXT_INJECT_EXTENSIONS as TEXT_INJECT_EXTENSIONS
    from hermes_agent.adapters.media import CachedMedia as CachedMedia
    from hermes_agent.adapters.media import cache_audio_from_bytes as cache_audio_from_bytes
    from hermes_agent.adapters.media import cache_audio_from_url as cache_audio_from_url
    from hermes_agent.adapters.media import cache_document_from_bytes as cache_document_from_bytes
    from hermes_agent.adapters.media import cache_image_from_bytes as cache_image_from_bytes
    from hermes_agent.adapters.media import cache_image_from_url as cache_image_from_url
    from hermes_agent.adapters.media import cache_media_bytes as cache_media_bytes
    from hermes_agent.adapters.media import cache_video_from_bytes as cache_video_from_bytes
    from hermes_agent.adapters.media import fetch_media as fetch_media
    from hermes_agent.adapters.media import looks_like_image as looks_like_image
    from hermes_agent.adapters.media import validate_inbound_media_size as validate_inbound_media_size
    from hermes_agent.adapters.media_references import AUDIO_EXTENSIONS as AUDIO_EXTENSIONS
    from hermes_agent.adapters.media_references import IMAGE_EXTENSIONS as IMAGE_EXTENSIONS
    from hermes_agent.adapters.media_references import VIDEO_EXTENSIONS as VIDEO_EXTENSIONS
    from hermes_agent.adapters.media_references import extract_images as extract_images
    from hermes_agent.adapters.media_references import extract_local_files as extract_local_files
    from hermes_agent.adapters.media_references import extract_media as extract_media
    from hermes_agent.adapters.media_references import filter_local_delivery_paths as filter_local_delivery_paths
    from hermes_agent.adapters.media_references import filter_media_delivery_paths as filter_media_delivery_paths
    from hermes_agent.adapters.media_references import is_animation_url as is_animation_url
    from hermes_agent.adapters.media_references import local_path as local_path
    from hermes_agent.adapters.media_references import validate_media_delivery_path as validate_media_delivery_path
    from hermes_agent.adapters.options import Option as Option
    from hermes_agent.adapters.options import Options as Options
    from hermes_agent.adapters.options import send_standalone as send_standalone
    from hermes_agent.adapters.options import standalone_attempt as standalone_attempt
    from hermes_agent.adapters.options import standalone_sender as standalone_sender
    from hermes_agent.adapters.proxies import is_host_excluded_by_no_proxy as is_host_excluded_by_no_proxy
    from hermes_agent.adapters.proxies import proxy_kwargs_for_aiohttp as proxy_kwargs_for_aiohttp
    from hermes_agent.adapters.proxies import proxy_kwargs_for_bot as proxy_kwargs_for_bot
    from hermes_agent.adapters.proxies import resolve_proxy_url as resolve_proxy_url
    from hermes_agent.adapters.questions import APPROVALS as APPROVALS
    from hermes_agent.adapters.questions import CHOICE as CHOICE
    from hermes_agent.adapters.questions import ReactionQuestions as ReactionQuestions
    from hermes_agent.adapters.questions import answer_text as answer_text
    from hermes_agent.adapters.questions import approval_buttons as approval_buttons
    from hermes_agent.adapters.questions import approval_text as approval_text
    from hermes_agent.adapters.questions import confirmation_buttons as confirmation_buttons
    from hermes_agent.adapters.questions import may_answer as may_answer
    from hermes_agent.adapters.sender import MessageSender as MessageSender
    from hermes_agent.adapters.text import ERROR_KINDS as ERROR_KINDS
    from hermes_agent.adapters.text import as_command as as_command
    from hermes_agent.adapters.text import classify_send_error as classify_send_error
    from hermes_agent.adapters.text import convert_table_to_bullets as convert_table_to_bullets
    from hermes_agent.adapters.text import prefix_within_utf16_limit as prefix_within_utf16_limit
    from hermes_agent.adapters.text import redact_phone as redact_phone
    from hermes_agent.adapters.text import split_message as split_message
    from hermes_agent.adapters.text import strip_markdown as strip_markdown
    from hermes_agent.adapters.text import strip_mention as strip_mention
    from hermes_agent.adapters.text import utf16_len as utf16_len

__all__ = [
    "APPROVALS",
    "AUDIO_EXTENSIONS",
    "BasePlatformAdapter",
    "CHAT_TYPES",
    "CHOICE",
    "CachedMedia",
    "Dialect",
    "ERROR_KINDS",
    "EphemeralReply",
    "HomeChannel",
    "IMAGE_EXTENSIONS",
    "MATRIX",
    "MAX_INBOUND_BYTES",
    "MessageDeduplicator",
    "MessageEvent",
    "MessageSender",
    "MessageType",
    "Option",
    "Options",
    "PLAIN",
    "Platform",
    "PlatformConfig",
    "PlatformEntry",
    "ProcessingOutcome",
    "ReactionQuestions",
    "ReadPositions",
    "SUPPORTED_DOCUMENT_TYPES",
    "SUPPORTED_IMAGE_DOCUMENT_TYPES",
    "SUPPORTED_VIDEO_TYPES",
    "SendResult",
    "SessionSource",
    "TELEGRAM",
    "TEXT_INJECT_EXTENSIONS",
    "ThreadParticipationTracker",
    "VIDEO_EXTENSIONS",
    "XMPP",
    "acquire_scoped_lock",
    "adapter_file",
    "answer_text",
    "approval_buttons",
    "approval_text",
    "as_command",
    "build_session_key",
    "cache_audio_from_bytes",
    "cache_audio_from_url",
    "cache_document_from_bytes",
    "cache_image_from_bytes",
    "cache_image_from_url",
    "cache_media_bytes",
    "cache_video_from_bytes",
    "classify_send_error",
    "confirmation_buttons",
    "convert_table_to_bullets",
    "extract_images",
    "extract_local_files",
    "extract_media",
    "fetch_media",
    "filter_local_delivery_paths",
    "filter_media_delivery_paths",
    "get_session_env",
    "is_animation_url",
    "is_host_excluded_by_no_proxy",
    "local_path",
    "looks_like_image",
    "may_answer",
    "merge_pending_message_event",
    "prefix_within_utf16_limit",
    "proxy_kwargs_for_aiohttp",
    "proxy_kwargs_for_bot",
    "redact_phone",
    "release_scoped_lock",
    "render",
    "resolve_proxy_url",
    "send_standalone",
    "split_message",
    "standalone_attempt",
    "standalone_sender",
    "strip_markdown",
    "strip_mention",
    "utf16_len",
    "validate_inbound_media_size",
    "validate_media_delivery_path",
]

_MODULES = {
    "adapter_state": (
        "MessageDeduplicator ReadPositions ThreadParticipationTracker acquire_scoped_lock adapter_file "
        "release_scoped_lock"
    ),
    "base": "BasePlatformAdapter",
    "config": "HomeChannel Platform PlatformConfig PlatformEntry",
    "events": (
        "CHAT_TYPES EphemeralReply MessageEvent MessageType ProcessingOutcome SendResult "
        "SessionSource build_session_key get_session_env merge_pending_message_event"
    ),
    "markdown": "MATRIX PLAIN TELEGRAM XMPP Dialect render",
    "media": (
        "MAX_INBOUND_BYTES SUPPORTED_DOCUMENT_TYPES SUPPORTED_IMAGE_DOCUMENT_TYPES SUPPORTED_VIDEO_TYPES "
        "TEXT_INJECT_EXTENSIONS CachedMedia cache_audio_from_bytes cache_audio_from_url cache_document_from_bytes "
        "cache_image_from_bytes cache_image_from_url cache_media_bytes cache_video_from_bytes fetch_media "
        "looks_like_image validate_inbound_media_size"
    ),
    "media_references": (
        "AUDIO_EXTENSIONS IMAGE_EXTENSIONS VIDEO_EXTENSIONS extract_images extract_local_files extract_media "
        "filter_local_delivery_paths filter_media_delivery_paths is_animation_url local_path "
        "validate_media_delivery_path"
    ),
    "options": "Option Options send_standalone standalone_attempt standalone_sender",
    "proxies": ("is_host_excluded_by_no_proxy proxy_kwargs_for_aiohttp proxy_kwargs_for_bot resolve_proxy_url"),
    "questions": (
        "APPROVALS CHOICE ReactionQuestions answer_text approval_buttons approval_text confirmation_buttons may_answer"
    ),
    "sender": "MessageSender",
    "text": (
        "ERROR_KINDS as_command classify_send_error convert_table_to_bullets prefix_within_utf16_limit redact_phone "
        "split_message strip_markdown strip_mention utf16_len"
    ),
}
"""Public names by module."""
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"hermes_agent.adapters.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Upstream's questions about tools, guards, approvals and skills, and the requirements of features.

Source: plugin contract §3, §4.7, §4.8, §6, §10, §11.1, §11.2.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import Token
from functools import partial
from pathlib import Path
from typing import Any

from hermes_agent.adapters.events import SESSION_VARIABLES
from hermes_agent.compat.agent import host, of_host
from hermes_agent.compat.approval import approval_mode, is_safe_url, pending_approval, request_tool_approval
from hermes_agent.compat.builtin_tools import is_usable
from hermes_agent.compat.config import fast_safe_load, load_config_readonly
from hermes_agent.compat.environment import FEATURES, FeatureUnavailable, feature_missing
from hermes_agent.compat.listings import shared
from hermes_agent.compat.names_023 import hermes_home_key
from hermes_agent.compat.plugins import (
    PLATFORM,
    get_external_skills_dirs,
    get_skill_commands,
    skill_matches_platform,
    skills_directory,
)
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import shorten
from hermes_agent.hooks.bus import GuardAllow, GuardAsk, GuardBlock, decide_verdict
from hermes_agent.memory.provider_session import fence_recalled
from hermes_agent.policy import Refusal
from hermes_agent.skills.skill_commands import slug
from hermes_agent.skills.skill_file import SkillFile, fits_environment, required_variables
from hermes_agent.tools import ToolRegistry

get_all_tool_names = of_host(lambda host: host.tools, ToolRegistry.get_all_tool_names)
get_available_toolsets = of_host(lambda host: host.tools, ToolRegistry.get_available_toolsets)
check_toolset_requirements = of_host(lambda host: host.tools, ToolRegistry.check_toolset_requirements)
check_tool_availability = of_host(lambda host: host.tools, ToolRegistry.check_tool_availability)


def get_toolset_for_tool(tool_name: str) -> str | None:
    """Return the toolset of a tool, or None if there is no such tool."""
    return host().tools.get_toolset_for_tool(tool_name)


def tool_to_toolset() -> dict[str, str]:
    """Return the toolset of each tool."""
    return shared("toolsets", host().tools.get_tool_to_toolset_map())


def toolset_requirements() -> dict[str, dict[str, Any]]:
    """Return what each toolset needs: `name`, `env_vars`, `check_fn`, `setup_url`, `tools`."""
    return shared("requirements", host().tools.get_toolset_requirements())


def coerce_tool_args(tool_name: str, args: dict[str, Any]) -> dict[str, Any]:
    """Convert texts in the arguments to the types of the tool's parameters, and return the arguments."""
    host().dispatcher.coerce(tool_name, args)
    return args


def _schema_of(tool: str) -> Callable[[], dict[str, Any]]:
    def schema() -> dict[str, Any]:
        return shared(f"schema {tool}", host().tools.get_schema(tool) or {})

    return schema


terminal_schema = _schema_of("terminal")
web_search_schema = _schema_of("web_search")
web_extract_schema = _schema_of("web_extract")
memory_schema = _schema_of("memory")
process_schema = _schema_of("process")
image_generate_schema = _schema_of("image_generate")
vision_analyze_schema = _schema_of("vision_analyze")
text_to_speech_schema = _schema_of("text_to_speech")
skills_list_schema = _schema_of("skills_list")
skill_view_schema = _schema_of("skill_view")


check_vision_requirements = partial(is_usable, "vision_analyze")
check_tts_requirements = partial(is_usable, "text_to_speech")
check_memory_requirements = partial(is_usable, "memory")
check_skills_requirements = partial(is_usable, "skills_list")
check_file_requirements = partial(is_usable, "read_file")


def uses_native_vision() -> bool:
    """Return False: a model gets the text of a tool's result, and `vision_analyze` describes pictures."""
    return False


def native_vision_result(image_url: str, question: str, image_data_url: str, image_size_bytes: int) -> dict[str, Any]:
    """Return the result of a tool with a picture in it; the model gets its `text_summary`."""
    text = f"Image {image_url} ({image_size_bytes} bytes). {question}".strip()
    picture = {"type": "image_url", "image_url": {"url": image_data_url}}
    return {
        "_multimodal": True,
        "content": [{"type": "text", "text": text}, picture],
        "text_summary": text,
        "meta": {"image_url": image_url, "size_bytes": image_size_bytes},
    }


# -- guards and approvals ----------------------------------------------------------------------------------------------


def _verdict(tool_name: str, args: Mapping[str, Any] | None, ids: Mapping[str, Any]) -> Any:
    results = host().hooks.fire("pre_tool_call", tool_name=tool_name, args=dict(args or {}), **ids)
    return decide_verdict(results, tool_name, fails_open=lambda plugin: False)


def get_pre_tool_call_directive(
    tool_name: str,
    args: Mapping[str, Any] | None,
    task_id: str = "",
    session_id: str = "",
    tool_call_id: str = "",
    turn_id: str = "",
    api_request_id: str = "",
    middleware_trace: list[Any] | None = None,
) -> tuple[str | None, str | None]:
    """Run the guards of a tool call; return `block` or `approve` with the message, or None twice.

    Args:
        middleware_trace: for the guards.
    """
    ids = _ids(task_id, session_id, tool_call_id, turn_id, api_request_id, middleware_trace)
    verdict = _verdict(tool_name, args, ids)
    if isinstance(verdict, GuardAllow):
        return None, None
    return ("block" if isinstance(verdict, GuardBlock) else "approve"), verdict.message


def get_pre_tool_call_block_message(
    tool_name: str,
    args: Mapping[str, Any] | None,
    task_id: str = "",
    session_id: str = "",
    tool_call_id: str = "",
    turn_id: str = "",
    api_request_id: str = "",
    middleware_trace: list[Any] | None = None,
) -> str | None:
    """Run the guards of a tool call; return the message of a block, or None."""
    ids = _ids(task_id, session_id, tool_call_id, turn_id, api_request_id, middleware_trace)
    verdict = _verdict(tool_name, args, ids)
    return verdict.message if isinstance(verdict, GuardBlock) else None


def resolve_pre_tool_block(
    tool_name: str,
    args: Mapping[str, Any] | None,
    task_id: str = "",
    session_id: str = "",
    tool_call_id: str = "",
    turn_id: str = "",
    api_request_id: str = "",
    middleware_trace: list[Any] | None = None,
) -> str | None:
    """Run the guards of a tool call and request the approval that one of them wants.

    Returns:
        The message for the model if the call must not run, else None.
    """
    ids = _ids(task_id, session_id, tool_call_id, turn_id, api_request_id, middleware_trace)
    verdict = _verdict(tool_name, args, ids)
    if isinstance(verdict, GuardAsk):
        answer = request_tool_approval(tool_name, verdict.message, rule_key=verdict.rule_key)
        return None if answer.get("approved") else str(answer.get("message") or f"BLOCKED: {verdict.message}")
    return verdict.message if isinstance(verdict, GuardBlock) else None


def _ids(task: str, session: str, call: str, turn: str, request: str, trace: list[Any] | None) -> dict[str, Any]:
    return {
        "task_id": task,
        "session_id": session,
        "tool_call_id": call,
        "turn_id": turn,
        "api_request_id": request,
        "middleware_trace": list(trace or ()),
    }


def get_pre_verify_continue_message(
    *,
    session_id: str = "",
    platform: str = "",
    model: str = "",
    coding: bool = False,
    attempt: int = 0,
    final_response: str = "",
    changed_paths: list[str] | None = None,
) -> str | None:
    """Call the listeners of `pre_verify`; return the first text that continues the turn, or None."""
    from hermes_agent.agent.turn_context import verify_nudge  # loaded with a turn

    answers = host().hooks.fire(
        "pre_verify",
        session_id=session_id,
        platform=platform,
        model=model,
        coding=coding,
        attempt=attempt,
        final_response=final_response,
        changed_paths=list(changed_paths or ()),
    )
    return verify_nudge(answers) or None


def get_plugin_context_engine() -> Any:
    """Return the context engine that a plugin registered, or None."""
    return next((engine for _, engine in host().providers["context_engine"].items()), None)


def set_current_session_key(session_key: str) -> Token[Any]:
    """Let approvals in this context belong to a session; return the token for `reset_current_session_key`."""
    token: Token[Any] = SESSION_VARIABLES["HERMES_SESSION_KEY"].set(session_key)
    return token


def reset_current_session_key(token: Token[Any]) -> None:
    """Restore the session from before `set_current_session_key`."""
    SESSION_VARIABLES["HERMES_SESSION_KEY"].reset(token)


def is_approval_bypass_active() -> bool:
    """Return whether the operator turned approvals off."""
    return approval_mode() == "off"


def permanent_allowlist() -> set[str]:
    """Return the rules of commands that the operator always allows."""
    return set(map(str, load_config_readonly().get("command_allowlist") or ()))


def list_gateway_approvals(session_key: str) -> list[dict[str, Any]]:
    """Return the pending approval requests of a session, oldest first.

    The keys are `request_id`, `session_key`, `command`, `description`, `pattern_key` and `choices`.
    """
    return [
        {
            "request_id": question.id,
            "session_key": question.session_key,
            "command": redactor.mask_known(question.request.detail),
            "description": question.request.summary,
            "pattern_key": question.request.rule_key,
            "choices": list(question.choices),
        }
        for question in host().asked.questions_for(session_key)
        if question.request is not None
    ]


def get_pending_gateway_approval(session_key: str) -> dict[str, Any] | None:
    """Return the oldest pending approval request of a session, or None."""
    return next(iter(list_gateway_approvals(session_key)), None)


def pending_gateway_approval_count(session_key: str) -> int:
    """Return the number of pending approval requests of a session."""
    return len(list_gateway_approvals(session_key))


def ack_gateway_approval(session_key: str, request_id: str) -> bool:
    """Return whether a request is pending; a client calls this when it has received the request."""
    return pending_approval(session_key, request_id) is not None


def withdraw_gateway_approval(session_key: str, request_id: str, cause: str) -> bool:
    """End a pending request that no user can answer as a refusal, and return whether it was pending."""
    reason = f"BLOCKED: the approval request was withdrawn ({cause}). The user has NOT consented."
    known = pending_approval(session_key, request_id) is not None
    return known and host().asked.answer(request_id, Refusal(reason))


def plugin_scope_for_module(name: str) -> str | None:
    """Return the key of the home if a plugin has the module of this name, or None."""
    manager = host().plugins
    roots = (getattr(record.module, "__name__", "") for record in manager.records)
    is_owned = any(root and (name == root or name.startswith(f"{root}.")) for root in roots)
    return hermes_home_key() if is_owned else None


def plugin_scope_for_callable(fn: Callable[..., Any]) -> str | None:
    """Return the key of the home if a plugin defines the function, or None."""
    return plugin_scope_for_module(str(getattr(fn, "__module__", None) or ""))


def passed_variables() -> frozenset[str]:
    """Return the variables of `terminal.env_passthrough`, which commands see."""
    return frozenset(map(str, (load_config_readonly().get("terminal") or {}).get("env_passthrough") or ()))


def is_env_passthrough(var_name: str) -> bool:
    """Return whether commands see a variable."""
    return var_name in passed_variables()


def clear_env_passthrough() -> None:
    """Do nothing: only the config passes variables to commands."""


async def async_is_safe_url(url: str) -> bool:
    """Return whether a tool may open `url`; the host is looked up outside of the event loop."""
    return await asyncio.to_thread(is_safe_url, url)


# -- features ----------------------------------------------------------------------------------------------------------


def is_feature_available(feature: str) -> bool:
    """Return whether the packages of a feature are installed; False for an unknown one."""
    try:
        return not feature_missing(feature)
    except FeatureUnavailable:
        return False


def feature_specs(feature: str) -> tuple[str, ...]:
    """Return the distributions of a feature.

    Raises:
        KeyError: the feature is unknown.
    """
    return tuple(FEATURES[feature].values())


def feature_install_command(feature: str) -> str | None:
    """Return the command that installs the packages of a feature, or None for an unknown one."""
    known = FEATURES.get(feature)
    return None if known is None else f"pip install {' '.join(known.values())}"


# -- skills ------------------------------------------------------------------------------------------------------------

EXCLUDED_DIRS = frozenset(
    {".git", ".github", ".hub", ".archive", ".venv", "venv", "node_modules", "site-packages", "__pycache__"}
    | {".tox", ".nox", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
)
"""Folders in which no skill lies."""
SUPPORT_DIRS = frozenset({"assets", "references", "scripts", "templates"})
"""Folders of a skill with files for it, in which no other skill lies."""
PLATFORM_NAMES = {"linux": "linux", "macos": "darwin", "windows": "win32"}
"""Values of `sys.platform` by their names in front matter."""
SHORT_DESCRIPTION = 60


def yaml_load(content: str) -> Any:
    """Return the value of a YAML text."""
    return fast_safe_load(content)


def build_memory_context_block(raw_context: str) -> str:
    """Return recalled text in a fence, or "" for none."""
    return fence_recalled(raw_context)


def get_all_skills_dirs() -> list[Path]:
    """Return the home's directory of skills, then those of `skills.external_dirs`."""
    return [skills_directory(), *get_external_skills_dirs()]


def is_skill_support_path(path: str | Path) -> bool:
    """Return whether a path lies in a folder for the files of a skill."""
    parents = Path(path).parents
    return any(folder.name in SUPPORT_DIRS and (folder.parent / "SKILL.md").is_file() for folder in parents)


def is_excluded_skill_path(path: str | Path) -> bool:
    """Return whether a scan for skills skips a path."""
    return not EXCLUDED_DIRS.isdisjoint(Path(path).parts) or is_skill_support_path(path)


def iter_skill_index_files(skills_dir: Path, filename: str) -> Iterator[Path]:
    """Yield the files of that name below a directory of skills, sorted by path."""
    found = []
    for folder, below, files in os.walk(skills_dir, followlinks=True):
        skipped = EXCLUDED_DIRS | (SUPPORT_DIRS if "SKILL.md" in files else frozenset())
        below[:] = [name for name in below if name not in skipped]
        if filename in files:
            found.append(Path(folder, filename))
    yield from sorted(found)


def extract_skill_description(frontmatter: Mapping[str, Any]) -> str:
    """Return the description of front matter in one short line."""
    return shorten(" ".join(str(frontmatter.get("description") or "").split()), SHORT_DESCRIPTION, mark="...")


def skill_matches_platform_list(platforms: Any) -> bool:
    """Return whether a list of systems names this one, or is empty."""
    return not platforms or skill_matches_platform({"platforms": platforms})


def skill_matches_environment(frontmatter: Mapping[str, Any]) -> bool:
    """Return whether a skill with this front matter is for this environment, or for all."""
    return fits_environment(SkillFile("", "", fields=frontmatter), os.environ)


def skill_variables(
    frontmatter: Mapping[str, Any], legacy_env_vars: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Return the variables that a skill requires, each with `name`, `prompt` and, if it has one, `help`."""
    given = frontmatter.get("required_environment_variables")
    entries = given if isinstance(given, list) else []
    about = {str(e.get("name") or e.get("env_var")): e for e in entries if isinstance(e, Mapping)}
    names = [*required_variables(SkillFile("", "", fields=frontmatter)), *(legacy_env_vars or ())]
    return [
        {
            "name": name,
            "prompt": str(about.get(name, {}).get("prompt") or f"Enter value for {name}"),
            **({"help": str(about[name]["help"])} if about.get(name, {}).get("help") else {}),
        }
        for name in dict.fromkeys(names)
    ]


def normalize_skill_lookup_name(identifier: str) -> str:
    """Return an absolute path of a skill relative to its directory of skills; any other name is unchanged."""
    path = Path(identifier)
    for root in get_all_skills_dirs() if path.is_absolute() else ():
        if path.resolve().is_relative_to(root.resolve()):
            return str(path.resolve().relative_to(root.resolve()))
    return identifier


def resolve_skill_command_key(command: str) -> str | None:
    """Return the key of a skill in `get_skill_commands` for a typed command, or None."""
    key = f"/{slug(command.lstrip('/'))}"
    return key if key in get_skill_commands() else None


def build_skill_invocation_message(
    cmd_key: str, user_instruction: str = "", task_id: str | None = None, runtime_note: str = ""
) -> str | None:
    """Return the user message of a skill as a command, or None if there is no such skill.

    Args:
        task_id: accepted and ignored.
        runtime_note: text that follows the instruction.
    """
    task = "\n\n".join(filter(None, (user_instruction.strip(), runtime_note.strip())))
    skills = host().slash.skills
    return skills.message(cmd_key.lstrip("/"), task, session_id=task_id or "", platform=PLATFORM)

"""The tools `skill_view`, which opens a skill or a file of it, and `skills_list`.

The tools are shown if a skill exists. Source: plugin contract §6.2, §6.4, §14.1 row 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.config import Config
from hermes_agent.config.settings import Settings
from hermes_agent.contracts.command import SlashCommand
from hermes_agent.contracts.tool import Effect, PluginSkill, Registrar
from hermes_agent.core.errors import CommandFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.hooks import HookBus
from hermes_agent.policy.taint import TaintTracker
from hermes_agent.skills.library import NAME, PluginSkills, SkillLibrary, SkillSettings
from hermes_agent.skills.prompts import SkillBundles
from hermes_agent.skills.skill_commands import SkillCommands, sibling_banner
from hermes_agent.skills.skill_file import (
    ACTIONS,
    DESCRIPTION_CHARS,
    SKILL_FILE,
    LocalSkill,
    SkillFile,
    find_skill,
    fits_platform,
    is_plain_path,
    linked_files,
    missing_credential_files,
    missing_variables,
    open_inside,
    read_document,
    required_commands,
    required_variables,
)
from hermes_agent.tools import current_scope, tool_result
from hermes_agent.tools.proposals import Proposals

if TYPE_CHECKING:
    from hermes_agent.skills.skill_changes import SkillEditor

SHOWN_NAMES = 20

SCHEMA: dict[str, Any] = {
    "name": "skill_view",
    "description": "Open a skill: instructions for a kind of task. Skills of plugins are named plugin:skill.",
    "parameters": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "file_path": {"type": "string", "description": "A file of the skill, as in its `linked_files`"},
        },
        "required": ["name"],
    },
}


class SkillView:
    """The handler."""

    def __init__(self, library: SkillLibrary) -> None:
        self._library = library

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return the skill as JSON text, or `success: false` with an `error` and what to do next."""
        name, file = args.get("name"), args.get("file_path") or ""
        if not isinstance(name, str) or not name.strip():
            return _failed("`name` is missing: it is the name of a skill")
        if not isinstance(file, str):
            return _failed(f"`file_path` is {file!r}: expected a path within the skill's directory")
        scope = current_scope.get()
        session = str(kwargs.get("session_id") or ("" if scope is None else scope.session_id))
        return self.view(name.strip(), file, session_id=session, platform="" if scope is None else scope.platform)

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the files of this home that a call shows (`Effect.place`)."""
        name, file = str(args.get("name") or "").strip(), str(args.get("file_path") or "")
        found = find_skill(name, self._library.all_skills()) if name and ":" not in name else []
        return [str((skill.directory / file if file else skill.file).resolve()) for skill in found]

    def view(self, name: str, file: str = "", *, session_id: str = "", platform: str = "") -> str:
        """Return what the tool answers.

        Args:
            file: a file of the skill; empty for its text.
            platform: where the conversation is; skills may be disabled there.
        """
        if not is_plain_path(name):
            hint = "Use a skill name or relative path within the skills directory."
            return _failed(f"Invalid skill name '{name}'.", hint=hint)
        if ":" in name:
            answer = self._of_plugin(name, file, session_id)
            if answer is not None:
                return answer
        local = name.replace(":", "/", 1).removesuffix(f"/{SKILL_FILE}").strip("/")
        return self._local(name, local, file, session_id, platform)

    # -- of plugins ------------------------------------------------------------------------------------------

    def _of_plugin(self, name: str, file: str, session_id: str) -> str | None:
        """Return the answer, or None when `name` may be a local `category/name`."""
        registry = self._library.plugins
        namespace, _, bare = name.partition(":")
        skill = registry.get(name)
        if skill is None and NAME.fullmatch(namespace) is None:
            return _failed(
                f"Invalid namespace '{namespace}' in '{name}'. Namespaces must match {NAME.pattern}.",
            )
        if not {namespace, registry.owner(name) or namespace}.isdisjoint(self._library.disabled_plugins()):
            if skill is None and find_skill(f"{namespace}/{bare}", self._library.all_skills()):
                return None
            return _failed(
                f"Plugin '{namespace}' is disabled. Re-enable with: hermes plugins enable {namespace}",
            )
        if skill is not None:
            return self._serve(skill, file, session_id)
        siblings = registry.of_plugin(namespace)
        if not siblings:
            why = registry.why_absent(name)
            return _failed(f"Skill '{name}' is not there: {why}") if why else None
        return _failed(
            f"Skill '{bare}' not found in plugin '{namespace}'.",
            available_skills=[s.qualified for s in siblings],
            hint=f"The '{namespace}' plugin provides {len(siblings)} skill(s).",
        )

    def _serve(self, skill: PluginSkill, file: str, session_id: str) -> str:
        library, name = self._library, skill.qualified
        if not skill.path.exists():
            library.plugins.remove(name)
            library.notify_change(name, "removed", skill.path, skill.plugin)
            return _failed(
                f"Skill '{name}' file no longer exists at {skill.path}. The registry entry has been cleaned up — "
                "try again after the plugin is reloaded."
            )
        try:
            document = read_document(skill.path)
        except OSError as exc:
            return _failed(f"Failed to read skill '{name}': {exc}")
        if not fits_platform(document):
            return _failed(f"Skill '{name}' is not supported on this platform.", readiness_status="unsupported")
        directory = skill.path.resolve().parent
        if file:
            return self._file(name, directory, file)
        siblings = [s for s in library.plugins.of_plugin(skill.plugin) if s.bare_name != skill.bare_name]
        text = library.render(document, name, directory, session_id)
        library.notify_change(name, "loaded", skill.path, skill.plugin)
        return tool_result(
            success=True,
            name=name,
            content=sibling_banner(skill, siblings) + text,
            description=(document.description or skill.description)[:DESCRIPTION_CHARS],
            linked_files=linked_files(directory),
            readiness_status="available",
        )

    # -- local -----------------------------------------------------------------------------------------------

    def _local(self, asked: str, name: str, file: str, session_id: str, platform: str) -> str:
        library = self._library
        found = find_skill(name, library.all_skills())
        if not found:
            known = [skill.name for skill in library.offered(platform) if not library.source(skill)]
            return _failed(
                f"Skill '{asked}' not found.",
                available_skills=known[:SHOWN_NAMES],
                hint="skills_list shows every skill." if known else "There are no skills in this home.",
            )
        if len(found) > 1:
            return _failed(
                f"Skill name '{asked}' is ambiguous: {len(found)} skills have it.",
                matches=[_mark_untrusted(skill.place, library.source(skill)) for skill in found],
                hint="Use one of these paths as the name.",
            )
        (skill,) = found
        if library.settings.is_disabled(skill, platform):
            return _failed(
                f"Skill '{skill.name}' is disabled in the config (skills.disabled, skills.platform_disabled)."
            )
        if not fits_platform(skill.document):
            return _failed(f"Skill '{skill.name}' is not supported on this platform.", readiness_status="unsupported")
        if file:
            if skill.flat:
                return _failed(f"Skill '{skill.name}' is a single file: it has no other files.")
            return self._file(skill.name, skill.directory, file, library.source(skill))
        library.notify_change(skill.name, "loaded", skill.file)
        fields, source = self._fields(skill, session_id), library.source(skill)
        return tool_result({k: v if k in _OWN_FIELDS else _mark_untrusted(v, source) for k, v in fields.items()})

    def _fields(self, skill: LocalSkill, session_id: str) -> dict[str, Any]:
        import shutil  # with the first skill that is read

        document = skill.document
        missing = missing_variables(document, self._library.has_value)
        absent = [name for name in required_commands(document) if shutil.which(name) is None]
        files = missing_credential_files(document, self._library.home)
        linked = None if skill.flat else linked_files(skill.directory)
        setup = document.fields.get("setup")
        optional = {
            "setup_help": setup.get("help") if isinstance(setup, dict) else None,
            "setup_note": _setup_note(missing, absent, files),
            "compatibility": document.fields.get("compatibility"),
            "metadata": document.fields.get("metadata"),
        }
        return {
            "success": True,
            "name": skill.name,
            "description": document.description,
            "tags": _words(document, "tags"),
            "related_skills": _words(document, "related_skills"),
            "content": self._library.render(document, skill.name, skill.directory, session_id),
            "path": skill.file.name
            if not skill.place
            else f"{skill.place}/{SKILL_FILE}"
            if not skill.flat
            else f"{skill.place}.md",
            "skill_dir": str(skill.directory),
            "linked_files": linked,
            "usage_hint": "Open a linked file with skill_view(name, file_path)." if linked else None,
            "required_environment_variables": [{"name": name} for name in required_variables(document)],
            "required_commands": required_commands(document),
            "missing_required_environment_variables": missing,
            "missing_credential_files": files,
            "missing_required_commands": absent,
            "setup_needed": bool(missing or absent or files),
            "setup_skipped": False,
            "readiness_status": "setup_needed" if missing or absent or files else "available",
            **{key: value for key, value in optional.items() if value},
        }

    def _file(self, name: str, directory: Path, file: str, source: str = "") -> str:
        try:
            data = open_inside(directory, file)
        except (OSError, ValueError) as exc:
            reason = getattr(exc, "strerror", None) or exc
            return _failed(
                f"File '{file}' of skill '{name}' cannot be opened: {reason}.",
                available_files=linked_files(directory),
                hint="Use a path within the skill's directory (references/, templates/, scripts/, assets/).",
            )
        shown: dict[str, Any] = {"success": True, "name": name, "file": file, "file_type": Path(file).suffix}
        try:
            return tool_result({**shown, "content": _mark_untrusted(data.decode("utf-8"), source)})
        except UnicodeDecodeError:
            text = f"[Binary file: {Path(file).name}, {len(data)} bytes]"
            return tool_result({**shown, "content": text, "is_binary": True})


def _setup_note(missing: Sequence[str], absent: Sequence[str], files: Sequence[str]) -> str | None:
    notes = [f"These variables have no value: {', '.join(missing)}."] if missing else []
    notes += [f"These commands are not installed: {', '.join(absent)}."] if absent else []
    notes += [f"These files are not in the home of the agent: {', '.join(files)}."] if files else []
    return " ".join(notes) or None


def _words(document: SkillFile, key: str) -> list[str]:
    return list(document.names("metadata", "hermes", key) or document.names(key))


_OWN_FIELDS = frozenset(
    (
        *("linked_files", "missing_required_environment_variables", "path", "readiness_status", "usage_hint"),
        *("required_environment_variables", "setup_needed", "setup_note", "setup_skipped", "skill_dir", "success"),
    )
)
"""Fields of an opened skill without text of its document: paths, and names of variables."""


def _mark_untrusted(value: Any, source: str) -> Any:
    """Return a value with its texts marked as untrusted if it has a source."""
    if not source:
        return value
    if isinstance(value, str):
        return mark_untrusted(value, source)
    if isinstance(value, Mapping):
        return {str(_mark_untrusted(key, source)): _mark_untrusted(item, source) for key, item in value.items()}
    return [_mark_untrusted(item, source) for item in value] if isinstance(value, list | tuple) else value


def _failed(error: str, **more: Any) -> str:
    return tool_result({"success": False, "error": error, **{k: v for k, v in more.items() if v}})


LIST_SCHEMA: dict[str, Any] = {
    "name": "skills_list",
    "description": "List the skills of this home: name, description, category.",
    "parameters": {"type": "object", "properties": {"category": {"type": "string"}}},
}


def skills_list(library: SkillLibrary, args: dict[str, Any], **kwargs: Any) -> str:
    """Return `skills`, `categories`, `count` and a `hint` as JSON text; plugins are categories.

    Untrusted text is marked.
    """
    scope = current_scope.get()
    offered = library.offered("" if scope is None else scope.platform)
    category = str(args.get("category") or "").strip("/")
    chosen = [skill for skill in offered if not category or skill.category == category]
    of_plugins = [row for row in library.plugin_rows() if not category or row.category == category]
    sources = {skill.place: library.source(skill) for skill in offered}
    own = library.categories([skill for skill in offered if not sources[skill.place]])
    others = {skill.category: sources[skill.place] for skill in offered if skill.category not in (*own, "")}
    return tool_result(
        success=True,
        skills=[
            {
                "name": _mark_untrusted(s.name, sources[s.place]),
                "description": _mark_untrusted(s.document.description, sources[s.place]),
                "category": _mark_untrusted(s.category, others.get(s.category, "")) or None,
            }
            for s in chosen
        ]
        + [{"name": row.name, "description": row.description, "category": row.category} for row in of_plugins],
        categories=[
            *own,
            *dict.fromkeys(row.category for row in of_plugins if row.category not in own),
            *(_mark_untrusted(name, source) for name, source in sorted(others.items())),
        ],
        count=len(chosen) + len(of_plugins),
        hint="Open one with skill_view(name)."
        if chosen or of_plugins
        else "There is none; `categories` lists those that exist.",
    )


CHANGE_SCHEMA: dict[str, Any] = {
    "name": "skill_manage",
    "description": (
        "Create or change a skill of this home. create, edit: `content` is the whole SKILL.md. patch: old_string to"
        " new_string. write_file, remove_file: file_path below references/, templates/, scripts/, assets/. The result"
        " says whether it was done or waits for the user."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(ACTIONS)},
            **{name: {"type": "string"} for name in ("name", "category", "content", "old_string", "new_string")},
            **{name: {"type": "string"} for name in ("file_path", "file_content", "reason")},
            "replace_all": {"type": "boolean"},
            "operations": {"type": "array", "items": {"type": "object"}, "description": "Several such, all or none"},
        },
    },
}


class SkillProposals:
    """Shows and applies the proposals of skills; the editor is loaded for the first one."""

    def __init__(self, editor: Callable[[], SkillEditor]) -> None:
        self._editor = editor

    def show(self, change: Mapping[str, Any]) -> str:
        """Return what the change does, as a diff."""
        return self._editor().show(change)

    def apply(self, change: Mapping[str, Any]) -> str:
        """Make the change and return what happened."""
        return self._editor().apply(change)


class SkillDeps(LazyNamedTuple):
    """Services of skills."""

    config: Config
    disabled_plugins: Callable[[], Sequence[str]]
    has_value: Callable[[str], bool]
    home: Path
    hooks: HookBus
    plugin_skills: PluginSkills
    proposals: Proposals
    provenance: TaintTracker


def _write_mode(settings: Settings) -> str:
    return "propose" if settings.skills.write_approval else settings.skills.write


class SkillServices(LazyNamedTuple):
    """Services that this feature provides."""

    skills: SkillLibrary
    skill_commands: SkillCommands
    skill_editor: Callable[[], SkillEditor]


def register(ctx: Registrar, deps: SkillDeps) -> SkillServices:
    """Register both tools and return the library."""
    library = SkillLibrary(
        deps.home,
        SkillSettings.of(deps.config.settings),
        plugins=deps.plugin_skills,
        hooks=deps.hooks,
        has_value=deps.has_value,
        disabled_plugins=deps.disabled_plugins,
        source_of=deps.provenance.source_of,
        setting_values=lambda: deps.config.settings.skills.config,
    )
    view, listing = SkillView(library), partial(skills_list, library)
    ctx.register_tool("skills_list", "skills", LIST_SCHEMA, listing, library.has_skills, emoji="📚")
    # a skill is requested as a whole; half a skill misleads
    ctx.register_tool(
        "skill_view",
        "skills",
        SCHEMA,
        view,
        library.has_skills,
        emoji="📖",
        max_result_size_chars=math.inf,
        effect=Effect("reads", place=view.files),
    )

    @cache
    def editor() -> SkillEditor:
        from hermes_agent.skills.skill_changes import SkillEditor  # most processes change no skill

        return SkillEditor(library, lambda: deps.config.settings.skills.write_budget)

    def manage(args: dict[str, Any], **kwargs: Any) -> str:
        from hermes_agent.skills.skill_changes import SkillManage  # with the editor

        return SkillManage(editor(), deps.proposals, partial(_write_mode, deps.config.settings))(args, **kwargs)

    deps.proposals.serve("skill", SkillProposals(editor))
    ctx.register_tool("skill_manage", "skills", CHANGE_SCHEMA, manage, emoji="📝", effect=Effect("remembers"))
    found = SkillCommands(library)
    ctx.register_slash_command(
        SlashCommand("bundles", partial(_bundles, found.bundles), "List the bundles of skills", "[NAME]")
    )
    return SkillServices(library, found, editor)


def _bundles(bundles: SkillBundles, raw_args: str) -> str:
    name = raw_args.strip().lstrip("/")
    found = bundles.find()
    if name and name not in found:
        raise CommandFailed(f"There is no bundle `{name}`; there are: {', '.join(found) or 'none'}.")
    if name:
        return found[name].text()
    rows = [f"/{each.name}: {each.about} ({', '.join(each.skills)})" for each in found.values()]
    return "\n".join(rows) or "There are no bundles. `hermes bundles create NAME --skill SKILL` makes one."

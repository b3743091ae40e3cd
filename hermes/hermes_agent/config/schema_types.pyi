# Made from schema.json by `make docs`; a test compares.
from typing import Any, Literal

from hermes_agent.config.settings import Section

class ModelLocalSection(Section):
    url: str
    path: str
    context_length: int
    tool_calls: Literal["auto", "template", "grammar"]
    threads: int
    idle_s: float
    idle_unload_s: float | None

class ModelSection(Section):
    provider: str
    default: str
    base_url: str
    api_key: str
    api_mode: str
    routes: list[dict[str, Any]]
    update_prices: bool
    context_length: int | None
    max_tokens: int | None
    local: ModelLocalSection

class AgentSection(Section):
    max_turns: int
    verbose: bool | None
    max_turn_tokens: int | None
    disabled_toolsets: list[str]
    gateway_timeout: float
    api_max_retries: int
    tool_use_enforcement: Any
    max_verify_nudges: int
    verify_on_stop: Any
    clarify_timeout: float
    reasoning_effort: str

class TerminalSection(Section):
    backend: str
    backends: dict[str, Any]
    persistent_shell: bool
    max_memory_mb: int
    max_processes: int
    sandbox: Literal["auto", "systemd", "bwrap", "off"]
    sandbox_memory_mb: int
    sandbox_processes: int
    sandbox_tmp_mb: int
    unconfined_commands: list[str]
    writable_paths: list[str]
    sandbox_paths: list[str]
    network: Literal["off", "ask", "hosts", "on"]
    exec_socket: str
    cwd: str
    timeout: float
    env_passthrough: list[str]
    docker_image: str
    docker_volumes: list[str]
    docker_mount_cwd_to_workspace: bool
    docker_forward_env: list[str]
    docker_env: dict[str, Any]
    singularity_image: str
    modal_image: str
    daytona_image: str
    container_cpu: float
    container_memory: int
    container_disk: int
    container_persistent: bool
    ssh_host: str
    ssh_user: str
    ssh_port: int
    ssh_key: str

class PluginsHostSection(Section):
    launcher: Any
    memory_mb: int
    call_timeout_s: float
    stall_s: float
    sockets: str

class PluginsSection(Section):
    enabled: list[str]
    disabled: list[str]
    allow_tool_override: list[str]
    auto_enable: bool
    isolation: str
    host: PluginsHostSection
    load_timeout_s: float
    load_timeout_seconds: float | None
    hook_timeout_s: float
    hook_callback_timeout: float | None
    catalog: str
    auto_update_check_hours: float
    scan_on_install: bool
    stream_reasoning_deltas: bool
    entries: dict[str, Any]

class ServerSection(Section):
    enabled: bool
    host: str
    port: int
    key: str
    allowed_origins: list[str]
    allowed_hosts: list[str]
    max_concurrent_turns: int
    drain_timeout_s: float
    max_connections: int
    max_connections_per_address: int
    head_timeout_s: float
    body_timeout_s: float

class ApprovalsSection(Section):
    mode: Literal["manual", "smart", "off"]
    timeout: float
    gateway_timeout: float
    cron_mode: Literal["deny", "approve"]
    deny: list[str]
    destructive_slash_confirm: bool
    mcp_reload_confirm: bool

class LoggingSection(Section):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    max_size_mb: float
    backup_count: int

class ToolOutputSection(Section):
    max_bytes: int
    max_lines: int
    max_line_length: int

class WebSection(Section):
    backend: str
    search_backend: str
    extract_backend: str

class BrowserSection(Section):
    cloud_provider: str
    inactivity_timeout: float
    command_timeout: float
    engine: str

class CheckpointsSection(Section):
    enabled: bool
    max_snapshots: int
    max_file_size_mb: float
    max_total_size_mb: float
    retention_days: float

class ToolLoopGuardrailsSection(Section):
    notice_after: int
    end_after: int

class CompressionSection(Section):
    enabled: bool
    threshold: float
    target_ratio: float
    protect_first_n: int
    protect_last_n: int
    in_place: bool
    summary_model: str | None

class PromptCachingSection(Section):
    cache_ttl: str

class AuxiliaryTaskSection(Section):
    provider: str
    model: str
    base_url: str
    api_key: str
    timeout: float
    enabled: bool
    fallback_chain: list[Any]
    extra_body: dict[str, Any]
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    stop: list[str] | None
    seed: int | None
    tool_choice: Literal["auto", "none", "required"] | None
    response_format: dict[str, Any] | None
    reasoning_effort: str

class AuxiliarySection(Section):
    transient_retries: int
    vision: AuxiliaryTaskSection
    compression: AuxiliaryTaskSection
    web_extract: AuxiliaryTaskSection
    approval: AuxiliaryTaskSection
    mcp: AuxiliaryTaskSection
    session_search: AuxiliaryTaskSection
    learning_review: AuxiliaryTaskSection
    title_generation: AuxiliaryTaskSection
    embeddings: AuxiliaryTaskSection
    web_client: AuxiliaryTaskSection
    memory_query_rewrite: AuxiliaryTaskSection
    tts_audio_tags: AuxiliaryTaskSection
    skills_hub: AuxiliaryTaskSection
    triage_specifier: AuxiliaryTaskSection
    kanban_decomposer: AuxiliaryTaskSection
    profile_describer: AuxiliaryTaskSection
    curator: AuxiliaryTaskSection

class DisplaySection(Section):
    busy_input_mode: Literal["interrupt", "queue", "steer"]
    interface: str
    streaming: bool
    skin: str
    editing_mode: Literal["emacs", "vi"]
    screen_reader: bool
    tool_progress: Literal["off", "new", "all", "verbose"]
    compact: bool
    language: str
    show_reasoning: bool
    personality: str | None

class DashboardSection(Section):
    hidden_plugins: list[str]

class PrivacySection(Section):
    redact_pii: bool

class TtsPreSynthesisSection(Section):
    required_plugins: list[str]

class TtsSection(Section):
    provider: str
    pre_synthesis: TtsPreSynthesisSection
    providers: dict[str, Any]

class SttLocalSection(Section):
    model: str

class SttSection(Section):
    provider: str
    local: SttLocalSection
    providers: dict[str, Any]

class HumanDelaySection(Section):
    mode: Literal["off", "natural", "custom"]

class ContextSection(Section):
    engine: str

class MemorySection(Section):
    memory_enabled: bool
    user_profile_enabled: bool
    memory_char_limit: int
    user_char_limit: int
    provider: str
    provider_serves: Literal["owner", "everybody"]

class DelegationSection(Section):
    max_iterations: int
    max_concurrent_children: int
    max_spawn_depth: int
    max_summary_chars: int

class SkillsSection(Section):
    external_dirs: list[str]
    disabled: list[str]
    platform_disabled: dict[str, Any]
    template_vars: bool
    inline_shell: bool
    inline_shell_timeout: float
    bundled: bool
    write: Literal["propose", "direct"]
    write_budget: int
    tap_base: str
    write_approval: bool
    config: dict[str, Any]

class LearningSection(Section):
    review: bool
    budget_pct: float

class CodeExecutionSection(Section):
    mode: str

class HooksOutputSpillSection(Section):
    enabled: bool
    max_chars: int
    preview_head: int
    preview_tail: int
    directory: str

class HooksSection(Section):
    outbound: list[dict[str, Any]] | None
    output_spill: HooksOutputSpillSection

class SecurityForeignTextSection(Section):
    ask: bool
    trusted: list[str]
    places: list[str]
    tools: dict[str, Any]

class SecurityApprovalSection(Section):
    transport: str
    transport_fallback: Literal["deny", "builtin"]

class SecuritySection(Section):
    redact_secrets: bool
    tirith_enabled: bool
    tirith_fail_open: bool
    allow_private_urls: bool
    allow_lazy_installs: bool
    foreign_text: SecurityForeignTextSection
    approval: SecurityApprovalSection
    website_blocklist: dict[str, Any]

class CronSection(Section):
    provider: str
    wrap_response: bool
    output_retention: int

class ToolsToolSearchSection(Section):
    enabled: Literal["auto", "on", "off", True]
    threshold_pct: float
    threshold_tokens: int
    pinned: list[str]
    search_default_limit: int
    max_search_limit: int

class ToolsSection(Section):
    tool_search: ToolsToolSearchSection

class McpSection(Section):
    auto_reload_on_config_change: bool

class NetworkSection(Section):
    hosts: list[str]
    deny: list[str]
    tools: Literal["ask", "hosts", "on"]

class GatewaySection(Section):
    messages_per_minute: int
    platform_messages_per_minute: int
    memory_soft_mb: int
    memory_hard_mb: int
    max_concurrent_turns: int
    pictures: Literal["auto", "always", "never"]
    voice_replies: Literal["off", "voice", "all"]

class SessionResetSection(Section):
    mode: Literal["both", "idle", "daily", "none"]
    idle_minutes: float
    at_hour: int

class StreamingSection(Section):
    enabled: bool
    edit_interval: float
    buffer_threshold: int
    cursor: str

class SessionsSection(Section):
    retention_days: float
    max_size_mb: float

class LimitsSection(Section):
    session_tokens: int | None
    session_usd: float | None
    job_tokens: int | None
    job_usd: float | None
    day_tokens: int | None
    day_usd: float | None
    unknown_price: Any

class SecretsSection(Section):
    sources: list[str]

class ImageGenSection(Section):
    provider: str

class VideoGenSection(Section):
    provider: str

class Settings(Section):
    model: ModelSection
    providers: dict[str, Any]
    agent: AgentSection
    terminal: TerminalSection
    plugins: PluginsSection
    server: ServerSection
    approvals: ApprovalsSection
    command_allowlist: list[str]
    logging: LoggingSection
    tool_output: ToolOutputSection
    file_read_max_chars: int
    custom_providers: list[dict[str, Any]]
    fallback_providers: list[Any]
    credential_pool_strategies: dict[str, Any]
    toolsets: list[str]
    platform_toolsets: dict[str, Any]
    known_plugin_toolsets: dict[str, Any]
    max_concurrent_sessions: int | None
    max_live_sessions: int | None
    web: WebSection
    browser: BrowserSection
    checkpoints: CheckpointsSection
    tool_loop_guardrails: ToolLoopGuardrailsSection
    compression: CompressionSection
    prompt_caching: PromptCachingSection
    openrouter: dict[str, Any]
    bedrock: dict[str, Any]
    vertex: dict[str, Any]
    auxiliary: AuxiliarySection
    display: DisplaySection
    dashboard: DashboardSection
    privacy: PrivacySection
    tts: TtsSection
    stt: SttSection
    voice: dict[str, Any]
    human_delay: HumanDelaySection
    context: ContextSection
    memory: MemorySection
    delegation: DelegationSection
    skills: SkillsSection
    learning: LearningSection
    curator: dict[str, Any]
    goals: dict[str, Any]
    moa: dict[str, Any]
    kanban: dict[str, Any]
    onboarding: dict[str, Any]
    updates: dict[str, Any]
    lsp: dict[str, Any]
    x_search: dict[str, Any]
    desktop: dict[str, Any]
    computer_use: dict[str, Any]
    code_execution: CodeExecutionSection
    slack: dict[str, Any]
    discord: dict[str, Any]
    telegram: dict[str, Any]
    whatsapp: dict[str, Any]
    mattermost: dict[str, Any]
    matrix: dict[str, Any]
    quick_commands: dict[str, Any]
    platform_hints: dict[str, Any]
    personalities: dict[str, Any]
    hooks: HooksSection
    hooks_auto_accept: bool
    hooks_consent: Literal["command", "content"]
    security: SecuritySection
    cron: CronSection
    tools: ToolsSection
    mcp: McpSection
    mcp_discovery_timeout: float
    mcp_servers: dict[str, Any]
    network: NetworkSection
    gateway: GatewaySection
    session_reset: SessionResetSection
    unauthorized_dm_behavior: Literal["pair", "ignore"]
    streaming: StreamingSection
    sessions: SessionsSection
    limits: LimitsSection
    webhooks: dict[str, Any]
    people: dict[str, Any]
    secrets: SecretsSection
    image_gen: ImageGenSection
    video_gen: VideoGenSection
    group_sessions_per_user: bool
    thread_sessions_per_user: bool
    reset_triggers: list[str]
    platforms: dict[str, Any]

CREATE TABLE schema_version (
    version INTEGER NOT NULL
);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    session_key TEXT,
    chat_id TEXT,
    chat_type TEXT,
    thread_id TEXT,
    display_name TEXT,
    origin_json TEXT,
    expiry_finalized INTEGER DEFAULT 0,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0,
    cwd TEXT,
    git_branch TEXT,
    git_repo_root TEXT,
    billing_provider TEXT,
    billing_base_url TEXT,
    billing_mode TEXT,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT,
    title TEXT,
    api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    compression_failure_cooldown_until REAL,
    compression_failure_error TEXT,
    compression_fallback_streak INTEGER NOT NULL DEFAULT 0,
    profile_name TEXT,
    rewind_count INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    effect_disposition TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER,
    finish_reason TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    codex_reasoning_items TEXT,
    codex_message_items TEXT,
    platform_message_id TEXT,
    observed INTEGER DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0,
    api_content TEXT
);
CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    billing_provider TEXT NOT NULL DEFAULT '',
    billing_base_url TEXT NOT NULL DEFAULT '',
    billing_mode TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '',
    api_call_count INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0,
    actual_cost_usd REAL NOT NULL DEFAULT 0,
    cost_status TEXT,
    cost_source TEXT,
    first_seen REAL,
    last_seen REAL,
    PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)
);
CREATE TABLE state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
);
CREATE TABLE gateway_routing (
    scope TEXT NOT NULL DEFAULT '',
    session_key TEXT NOT NULL,
    entry_json TEXT NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (scope, session_key)
);
CREATE TABLE compression_locks (
    session_id TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL
);
CREATE TABLE async_delegations (
    delegation_id TEXT PRIMARY KEY,
    origin_session TEXT NOT NULL,
    origin_ui_session_id TEXT NOT NULL DEFAULT '',
    parent_session_id TEXT,
    state TEXT NOT NULL,
    dispatched_at REAL NOT NULL,
    completed_at REAL,
    updated_at REAL NOT NULL,
    event_json TEXT,
    result_json TEXT,
    delivery_state TEXT NOT NULL DEFAULT 'pending',
    delivery_attempts INTEGER NOT NULL DEFAULT 0,
    delivered_at REAL,
    owner_pid INTEGER,
    owner_started_at INTEGER,
    task_json TEXT,
    delivery_claim TEXT,
    delivery_claimed_at REAL
);
INSERT INTO schema_version VALUES (22);
INSERT INTO sessions VALUES ('20250102_030405_000000', 'telegram', '4711', NULL, NULL, NULL, NULL, NULL, NULL, 0, 'vendor/model', NULL, NULL, NULL, 1795646682.6994953, NULL, NULL, 1, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
INSERT INTO sessions VALUES ('20250102_030405_000001', 'cli', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 'vendor/model', NULL, 'You are kind.', NULL, 1795646682.847529, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'The tree', 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
INSERT INTO sessions VALUES ('20250102_030405_000002', 'telegram', '5', NULL, NULL, NULL, NULL, NULL, NULL, 0, 'vendor/model', NULL, NULL, NULL, 1795646682.9934275, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
INSERT INTO sessions VALUES ('20250102_030405_000003', 'cli', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 'vendor/model', NULL, 'You are kind.', NULL, 1795646683.1113029, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
INSERT INTO sessions VALUES ('20250102_030405_branch', 'cli', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, '20250102_030405_000001', 1795646683.2232249, NULL, NULL, 1, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
INSERT INTO messages VALUES (1, '20250102_030405_000000', 'user', 'question 0 of 0: where is the tree? 나무 木 🌳', NULL, NULL, NULL, NULL, 1795646682.7232623, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (2, '20250102_030405_000000', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, NULL, 1795646682.7272322, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (3, '20250102_030405_000000', 'tool', 'tree.txt', 'c1', NULL, 'terminal', NULL, 1795646682.7392368, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (4, '20250102_030405_000000', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, NULL, 1795646682.7476728, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (5, '20250102_030405_000000', 'assistant', 'answer 0', NULL, NULL, NULL, NULL, 1795646682.7632492, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (6, '20250102_030405_000000', 'user', 'question 1 of 0: where is the tree? 나무 木 🌳', NULL, NULL, NULL, NULL, 1795646682.7814026, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (7, '20250102_030405_000000', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, NULL, 1795646682.8073175, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (8, '20250102_030405_000000', 'tool', 'tree.txt', 'c1', NULL, 'terminal', NULL, 1795646682.823236, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (9, '20250102_030405_000000', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, NULL, 1795646682.831249, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (10, '20250102_030405_000000', 'assistant', 'answer 1', NULL, NULL, NULL, NULL, 1795646682.8433657, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1, NULL);
INSERT INTO messages VALUES (11, '20250102_030405_000001', 'user', 'question 0 of 1: where is the tree? 나무 木 🌳', NULL, NULL, NULL, NULL, 1795646682.8592293, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (12, '20250102_030405_000001', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, NULL, 1795646682.8752673, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (13, '20250102_030405_000001', 'tool', 'tree.txt', 'c1', NULL, 'terminal', NULL, 1795646682.8872116, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (14, '20250102_030405_000001', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, NULL, 1795646682.8938663, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (15, '20250102_030405_000001', 'assistant', 'answer 0', NULL, NULL, NULL, NULL, 1795646682.903217, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (16, '20250102_030405_000001', 'user', 'question 1 of 1: where is the tree? 나무 木 🌳', NULL, NULL, NULL, NULL, 1795646682.9168048, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (17, '20250102_030405_000001', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, NULL, 1795646682.923875, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (18, '20250102_030405_000001', 'tool', 'tree.txt', 'c1', NULL, 'terminal', NULL, 1795646682.9271839, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (19, '20250102_030405_000001', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, NULL, 1795646682.9434862, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (20, '20250102_030405_000001', 'assistant', 'answer 1', NULL, NULL, NULL, NULL, 1795646682.9512339, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (21, '20250102_030405_000002', 'user', 'question 0 of 2: where is the tree? 나무 木 🌳', NULL, NULL, NULL, NULL, 1795646683.0033107, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (22, '20250102_030405_000002', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, NULL, 1795646683.0152578, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (23, '20250102_030405_000002', 'tool', 'tree.txt', 'c1', NULL, 'terminal', NULL, 1795646683.0272315, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (24, '20250102_030405_000002', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, NULL, 1795646683.037148, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (25, '20250102_030405_000002', 'assistant', 'answer 0', NULL, NULL, NULL, NULL, 1795646683.047234, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (26, '20250102_030405_000002', 'user', 'question 1 of 2: where is the tree? 나무 木 🌳', NULL, NULL, NULL, NULL, 1795646683.0553725, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (27, '20250102_030405_000002', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, NULL, 1795646683.059225, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (28, '20250102_030405_000002', 'tool', 'tree.txt', 'c1', NULL, 'terminal', NULL, 1795646683.0832527, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (29, '20250102_030405_000002', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, NULL, 1795646683.0939481, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (30, '20250102_030405_000002', 'assistant', 'answer 1', NULL, NULL, NULL, NULL, 1795646683.0992696, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (31, '20250102_030405_000003', 'user', 'question 0 of 3: where is the tree? 나무 木 🌳', NULL, NULL, NULL, NULL, 1795646683.1272464, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (32, '20250102_030405_000003', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, NULL, 1795646683.1394708, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (33, '20250102_030405_000003', 'tool', 'tree.txt', 'c1', NULL, 'terminal', NULL, 1795646683.143292, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (34, '20250102_030405_000003', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, NULL, 1795646683.1592677, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (35, '20250102_030405_000003', 'assistant', 'answer 0', NULL, NULL, NULL, NULL, 1795646683.1712523, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (36, '20250102_030405_000003', 'user', 'question 1 of 3: where is the tree? 나무 木 🌳', NULL, NULL, NULL, NULL, 1795646683.1872642, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (37, '20250102_030405_000003', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, NULL, 1795646683.2032838, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (38, '20250102_030405_000003', 'tool', 'tree.txt', 'c1', NULL, 'terminal', NULL, 1795646683.2113867, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (39, '20250102_030405_000003', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, NULL, 1795646683.215237, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (40, '20250102_030405_000003', 'assistant', 'answer 1', NULL, NULL, NULL, NULL, 1795646683.2194333, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (41, '20250102_030405_branch', 'user', 'from the branch', NULL, NULL, NULL, NULL, 1795646683.231216, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (42, '20250102_030405_000000', 'user', 'summary of before', NULL, NULL, NULL, NULL, 1795646683.245065, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);

CREATE TABLE schema_version (
    version INTEGER NOT NULL
);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
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
    active INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
);
CREATE TABLE compression_locks (
    session_id TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL
);
INSERT INTO schema_version VALUES (16);
INSERT INTO sessions VALUES ('20250102_030405_000000', 'telegram', '4711', 'vendor/model', NULL, NULL, NULL, 1795646680.2114499, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0, 0);
INSERT INTO sessions VALUES ('20250102_030405_000001', 'cli', NULL, 'vendor/model', NULL, 'You are kind.', NULL, 1795646680.2811325, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'The tree', 0, NULL, NULL, NULL, 0, 0);
INSERT INTO sessions VALUES ('20250102_030405_000002', 'telegram', '5', 'vendor/model', NULL, NULL, NULL, 1795646680.3807895, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0, 0);
INSERT INTO sessions VALUES ('20250102_030405_000003', 'cli', NULL, 'vendor/model', NULL, 'You are kind.', NULL, 1795646680.4594047, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0, 0);
INSERT INTO sessions VALUES ('20250102_030405_branch', 'cli', NULL, NULL, NULL, NULL, '20250102_030405_000001', 1795646680.5391793, NULL, NULL, 1, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0, 0);
INSERT INTO messages VALUES (1, '20250102_030405_000000', 'user', 'question 0 of 0: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646680.2192388, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (2, '20250102_030405_000000', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646680.2313046, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (3, '20250102_030405_000000', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646680.2392929, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (4, '20250102_030405_000000', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646680.2497518, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (5, '20250102_030405_000000', 'assistant', 'answer 0', NULL, NULL, NULL, 1795646680.255235, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (6, '20250102_030405_000000', 'user', 'question 1 of 0: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646680.266925, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (7, '20250102_030405_000000', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646680.2678673, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (8, '20250102_030405_000000', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646680.268283, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (9, '20250102_030405_000000', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646680.2721963, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (10, '20250102_030405_000000', 'assistant', 'answer 1', NULL, NULL, NULL, 1795646680.2804663, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (11, '20250102_030405_000001', 'user', 'question 0 of 1: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646680.2913024, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (12, '20250102_030405_000001', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646680.2974672, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (13, '20250102_030405_000001', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646680.2991903, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (14, '20250102_030405_000001', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646680.315337, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (15, '20250102_030405_000001', 'assistant', 'answer 0', NULL, NULL, NULL, 1795646680.3183079, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (16, '20250102_030405_000001', 'user', 'question 1 of 1: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646680.3290024, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (17, '20250102_030405_000001', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646680.335268, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (18, '20250102_030405_000001', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646680.3398278, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (19, '20250102_030405_000001', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646680.3481863, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (20, '20250102_030405_000001', 'assistant', 'answer 1', NULL, NULL, NULL, 1795646680.3552275, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (21, '20250102_030405_000002', 'user', 'question 0 of 2: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646680.3831708, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (22, '20250102_030405_000002', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646680.3912642, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (23, '20250102_030405_000002', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646680.40723, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (24, '20250102_030405_000002', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646680.4192874, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (25, '20250102_030405_000002', 'assistant', 'answer 0', NULL, NULL, NULL, 1795646680.4233859, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (26, '20250102_030405_000002', 'user', 'question 1 of 2: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646680.42384, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (27, '20250102_030405_000002', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646680.4243515, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (28, '20250102_030405_000002', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646680.4379025, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (29, '20250102_030405_000002', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646680.4472728, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (30, '20250102_030405_000002', 'assistant', 'answer 1', NULL, NULL, NULL, 1795646680.4552283, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (31, '20250102_030405_000003', 'user', 'question 0 of 3: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646680.4632027, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (32, '20250102_030405_000003', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646680.4752486, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (33, '20250102_030405_000003', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646680.483272, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (34, '20250102_030405_000003', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646680.4872656, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (35, '20250102_030405_000003', 'assistant', 'answer 0', NULL, NULL, NULL, 1795646680.4878507, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (36, '20250102_030405_000003', 'user', 'question 1 of 3: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646680.4987319, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (37, '20250102_030405_000003', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646680.508551, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (38, '20250102_030405_000003', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646680.51224, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (39, '20250102_030405_000003', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646680.5235717, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (40, '20250102_030405_000003', 'assistant', 'answer 1', NULL, NULL, NULL, 1795646680.528876, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO messages VALUES (41, '20250102_030405_branch', 'user', 'from the branch', NULL, NULL, NULL, 1795646680.5402465, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1);

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
    codex_message_items TEXT
);
CREATE TABLE state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
);
INSERT INTO schema_version VALUES (11);
INSERT INTO sessions VALUES ('20250102_030405_000000', 'telegram', '4711', 'vendor/model', NULL, NULL, NULL, 1795646675.5913134, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL);
INSERT INTO sessions VALUES ('20250102_030405_000001', 'cli', NULL, 'vendor/model', NULL, 'You are kind.', NULL, 1795646675.7112958, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'The tree', 0, NULL, NULL, NULL);
INSERT INTO sessions VALUES ('20250102_030405_000002', 'telegram', '5', 'vendor/model', NULL, NULL, NULL, 1795646675.8468566, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL);
INSERT INTO sessions VALUES ('20250102_030405_000003', 'cli', NULL, 'vendor/model', NULL, 'You are kind.', NULL, 1795646675.9353187, NULL, NULL, 10, 2, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL);
INSERT INTO sessions VALUES ('20250102_030405_branch', 'cli', NULL, NULL, NULL, NULL, '20250102_030405_000001', 1795646676.0514824, NULL, NULL, 1, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL);
INSERT INTO messages VALUES (1, '20250102_030405_000000', 'user', 'question 0 of 0: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646675.5993474, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (2, '20250102_030405_000000', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646675.6000621, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (3, '20250102_030405_000000', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646675.6031945, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (4, '20250102_030405_000000', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646675.6122773, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (5, '20250102_030405_000000', 'assistant', 'answer 0', NULL, NULL, NULL, 1795646675.6129, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (6, '20250102_030405_000000', 'user', 'question 1 of 0: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646675.6312883, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (7, '20250102_030405_000000', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646675.644743, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (8, '20250102_030405_000000', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646675.6592612, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (9, '20250102_030405_000000', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646675.675273, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (10, '20250102_030405_000000', 'assistant', 'answer 1', NULL, NULL, NULL, 1795646675.6912665, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (11, '20250102_030405_000001', 'user', 'question 0 of 1: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646675.7312844, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (12, '20250102_030405_000001', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646675.7472918, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (13, '20250102_030405_000001', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646675.7512908, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (14, '20250102_030405_000001', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646675.7672963, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (15, '20250102_030405_000001', 'assistant', 'answer 0', NULL, NULL, NULL, 1795646675.7872856, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (16, '20250102_030405_000001', 'user', 'question 1 of 1: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646675.7919405, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (17, '20250102_030405_000001', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646675.8016279, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (18, '20250102_030405_000001', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646675.8073304, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (19, '20250102_030405_000001', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646675.8192928, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (20, '20250102_030405_000001', 'assistant', 'answer 1', NULL, NULL, NULL, 1795646675.824088, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (21, '20250102_030405_000002', 'user', 'question 0 of 2: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646675.8507833, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (22, '20250102_030405_000002', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646675.8608086, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (23, '20250102_030405_000002', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646675.873201, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (24, '20250102_030405_000002', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646675.8762088, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (25, '20250102_030405_000002', 'assistant', 'answer 0', NULL, NULL, NULL, 1795646675.885858, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (26, '20250102_030405_000002', 'user', 'question 1 of 2: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646675.8943326, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (27, '20250102_030405_000002', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646675.907471, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (28, '20250102_030405_000002', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646675.913182, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (29, '20250102_030405_000002', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646675.9233751, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (30, '20250102_030405_000002', 'assistant', 'answer 1', NULL, NULL, NULL, 1795646675.927467, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (31, '20250102_030405_000003', 'user', 'question 0 of 3: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646675.943345, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (32, '20250102_030405_000003', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646675.9556918, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (33, '20250102_030405_000003', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646675.9672606, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (34, '20250102_030405_000003', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646675.975639, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (35, '20250102_030405_000003', 'assistant', 'answer 0', NULL, NULL, NULL, 1795646675.9833117, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (36, '20250102_030405_000003', 'user', 'question 1 of 3: where is the tree? 나무 木 🌳', NULL, NULL, NULL, 1795646675.9912727, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (37, '20250102_030405_000003', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]', NULL, 1795646676.0015008, NULL, NULL, 'it may be outside', NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (38, '20250102_030405_000003', 'tool', 'tree.txt', 'c1', NULL, 'terminal', 1795646676.0110195, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (39, '20250102_030405_000003', 'user', CAST(x'006a736f6e3a5b7b2274797065223a202274657874222c202274657874223a2022616e6420746869733f227d5d' AS TEXT), NULL, NULL, NULL, 1795646676.0272868, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (40, '20250102_030405_000003', 'assistant', 'answer 1', NULL, NULL, NULL, 1795646676.0473094, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO messages VALUES (41, '20250102_030405_branch', 'user', 'from the branch', NULL, NULL, NULL, 1795646676.0554142, NULL, NULL, NULL, NULL, NULL, NULL, NULL);

CREATE TABLE header (
    suite TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    key TEXT NOT NULL,
    state INTEGER NOT NULL,
    sum TEXT NOT NULL
);
CREATE TABLE request (
    id INTEGER PRIMARY KEY,
    suite TEXT NOT NULL,
    key TEXT NOT NULL,
    item TEXT NOT NULL,
    sample INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    role TEXT NOT NULL,
    UNIQUE (suite, key)
);
CREATE TABLE reply (
    id INTEGER PRIMARY KEY REFERENCES request,
    pieces TEXT,
    finish TEXT,
    first_tokens TEXT,
    scores TEXT,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cost REAL,
    seconds REAL NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT,
    kind TEXT,
    status INTEGER,
    sum TEXT NOT NULL
);
CREATE TABLE reading (
    id INTEGER PRIMARY KEY,
    suite TEXT NOT NULL,
    key TEXT NOT NULL,
    reading TEXT NOT NULL,
    text TEXT NOT NULL,
    types TEXT NOT NULL,
    score REAL,
    own INTEGER NOT NULL,
    kept REAL NOT NULL,
    stopped INTEGER NOT NULL,
    seconds REAL,
    sum TEXT NOT NULL,
    UNIQUE (suite, key)
);
CREATE VIEW answer AS
SELECT
    request.suite, item, sample, turn, role,
    (SELECT group_concat(value, '') FROM json_each(pieces) WHERE type = 'text') AS text,
    finish, error, reading.reading, reading.text AS shown, reading.types, reading.score
FROM request
JOIN reply USING (id)
LEFT JOIN reading ON reading.suite = request.suite AND reading.key = request.key

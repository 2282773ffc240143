-- Every statement of knowledge, by name. `$n` are parameters; times are milliseconds since 1970.

-- name: lock
-- Begins every change to a person's memories: one at a time, so that their number can be looked at.
SELECT pg_advisory_xact_lock(hashtextextended('knowledge:' || $1, 0));

-- name: count
-- How many memories a person has.
SELECT count(*) FROM knowledge.memories WHERE user_id = $1;

-- name: add
-- A new memory.
INSERT INTO knowledge.memories (
    id, user_id, workspace, category, content, words, session_id, change, created_ms, updated_ms
)
VALUES (
    $1, $2, $3, $4, $5, to_tsvector('english', $6) || to_tsvector('simple', $6), $7,
    nextval('knowledge.changes'), $8, $8
);

-- name: rewrite
-- Another text for a memory; where no workspace is named it keeps its own.
UPDATE knowledge.memories
SET workspace = coalesce($3, workspace), category = $4, content = $5,
    words = to_tsvector('english', $6) || to_tsvector('simple', $6),
    session_id = $7, change = nextval('knowledge.changes'), updated_ms = $8
WHERE id = $1 AND user_id = $2
RETURNING id;

-- name: delete
-- A memory that is no longer true.
DELETE FROM knowledge.memories WHERE id = $1 AND user_id = $2 RETURNING id;

-- name: list
-- A person's memories, the latest change first.
SELECT id, content, category, workspace, session_id, change, created_ms, updated_ms, NULL::real AS score
FROM knowledge.memories
WHERE user_id = $1 AND ($2::text IS NULL OR category = $2)
    AND ($3::text IS NULL OR workspace IS NULL OR workspace = $3) AND change < $4
ORDER BY change DESC
LIMIT $5;

-- name: search
-- Those in which any of the words is found: the best first, and of equals the latest.
SELECT id, content, category, workspace, session_id, change, created_ms, updated_ms,
    ts_rank(words, query, 1) AS score
FROM knowledge.memories, (SELECT websearch_to_tsquery('english', $4) || websearch_to_tsquery('simple', $4)) AS one (query)
WHERE user_id = $1 AND ($2::text IS NULL OR category = $2)
    AND ($3::text IS NULL OR workspace IS NULL OR workspace = $3) AND words @@ query
ORDER BY score DESC, change DESC
LIMIT $5;

-- name: prune
-- Answers that nobody asks for again.
DELETE FROM knowledge.answered WHERE answered_ms < $1;

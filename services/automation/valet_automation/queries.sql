-- Every statement of automation, by name. `$n` are parameters; times are milliseconds since 1970.

-- name: lock
-- Begins every change to a person's board: one at a time, so that it can be judged as a whole.
SELECT pg_advisory_xact_lock(hashtextextended('automation:' || $1, 0));

-- name: unfinished
-- What is to be done on a board, and what each of it waits for.
SELECT id, blocked_by FROM automation.tasks WHERE user_id = $1 AND status NOT IN ('done', 'cancelled');

-- name: known
-- Which of some tasks are on a board.
SELECT id FROM automation.tasks WHERE user_id = $1 AND id = ANY ($2::text[]);

-- name: add
-- A new task.
INSERT INTO automation.tasks (
    id, user_id, title, description, status, priority, assigned_session, parent_task, blocked_by, result, created_by,
    created_ms, updated_ms
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)
RETURNING *;

-- name: change
-- A task after an update.
UPDATE automation.tasks
SET title = $3, description = $4, status = $5, priority = $6, assigned_session = $7, parent_task = $8, blocked_by = $9,
    result = $10, updated_ms = $11
WHERE id = $1 AND user_id = $2
RETURNING *;

-- name: task
-- One task of a board.
SELECT * FROM automation.tasks WHERE id = $1 AND user_id = $2;

-- name: list
-- Tasks of a board, the most urgent first and of those the oldest; without a status those that are not finished.
SELECT * FROM automation.tasks
WHERE user_id = $1
    AND CASE WHEN $2::text IS NULL THEN status NOT IN ('done', 'cancelled') ELSE status = $2 END
    AND ($3::text IS NULL OR assigned_session = $3) AND ($4::text IS NULL OR parent_task = $4)
    AND (priority, -number) < ($5::smallint, -$6::bigint)
ORDER BY priority DESC, number
LIMIT $7;

-- name: prune_answers
-- Answers that nobody asks for again.
DELETE FROM automation.answered WHERE answered_ms < $1;

-- name: prune_tasks
-- Tasks that were finished long ago, but for those of which something is still to be done.
DELETE FROM automation.tasks AS old
WHERE status IN ('done', 'cancelled') AND updated_ms < $1 AND NOT EXISTS (
    SELECT FROM automation.tasks AS part
    WHERE part.user_id = old.user_id AND part.parent_task = old.id AND part.status NOT IN ('done', 'cancelled')
);

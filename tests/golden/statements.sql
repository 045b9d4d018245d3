
    INSERT INTO calls (key, lane, role, model_id, request)
    SELECT * FROM unnest(CAST($1 AS bytea[]), CAST($2 AS text[]), CAST($3 AS text[]),
                         CAST($4 AS integer[]), CAST($5 AS bytea[]))
    ON CONFLICT (key) WHERE NOT failed DO NOTHING RETURNING id, key


    INSERT INTO jobs (name, pipeline, repeats, reuse, rank, metadata, public_id, pipeline_hash, params, dataset_id, corpus_id, pins, total, online, code, requeued_from, experiment_id, state)
    SELECT u.name, u.pipeline, u.repeats, u.reuse, u.rank, u.metadata, u.public_id, u.pipeline_hash, u.params, u.dataset_id, u.corpus_id, u.pins, u.total, u.online, u.code, (SELECT id FROM jobs r WHERE r.public_id = u.requeued_from), u.experiment_id, 'preparing'
    FROM unnest(CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS integer[]), CAST($4 AS text[]), CAST($5 AS integer[]), CAST($6 AS jsonb[]), CAST($7 AS uuid[]), CAST($8 AS bytea[]), CAST($9 AS bytea[]), CAST($10 AS integer[]), CAST($11 AS integer[]), CAST($12 AS jsonb[]), CAST($13 AS integer[]), CAST($14 AS boolean[]), CAST($15 AS jsonb[]), CAST($16 AS uuid[]), CAST($17 AS integer[])) WITH ORDINALITY
        u(name, pipeline, repeats, reuse, rank, metadata, public_id, pipeline_hash, params, dataset_id, corpus_id, pins, total, online, code, requeued_from, experiment_id, place)
    ORDER BY u.place RETURNING id, pipeline


    INSERT INTO models (name, backend, digest, version, options, hash, device, needs_lease, footprint_mib, estimated,
                        architecture)
    VALUES ($1, $2, $3, $4, CAST($5 AS jsonb), $6, $7, $8, $9,
            $10, CAST($11 AS jsonb))
    ON CONFLICT (hash) DO UPDATE SET registered_at = clock_timestamp(), device = EXCLUDED.device,
        footprint_mib = EXCLUDED.footprint_mib, estimated = EXCLUDED.estimated, architecture = EXCLUDED.architecture,
        served = true
    RETURNING id


    INSERT INTO outcomes (sample_id, outcome, answer, extraction, correct, strict, record_hash)
    SELECT * FROM unnest(CAST($1 AS bigint[]), CAST($2 AS bytea[]), CAST($3 AS text[]),
        CAST($4 AS text[]), CAST($5 AS boolean[]), CAST($6 AS boolean[]),
        CAST($7 AS bytea[]))


    INSERT INTO queue (lane, model_id, place, call_id)
    SELECT * FROM unnest(CAST($1 AS text[]), CAST($2 AS integer[]), CAST($3 AS bigint[]),
                         CAST($4 AS bigint[]))


    INSERT INTO records (job_id, sample_id, seq, hash, previous)
    SELECT $1, * FROM unnest(CAST($2 AS bigint[]), CAST($3 AS integer[]), CAST($4 AS bytea[]),
        CAST($5 AS bytea[]))


    INSERT INTO samples (job_id, kind, ordinal, repeat, state)
    SELECT id, 'prepare', 0, 0, 0 FROM unnest(CAST($1 AS bigint[])) j(id) ORDER BY id


    INSERT INTO samples (job_id, kind, ordinal, repeat, state)
    SELECT j.id, 'item', i.ordinal, r, 0
    FROM jobs j, LATERAL (
        SELECT ordinal FROM items WHERE dataset_id = j.dataset_id
            AND ordinal < COALESCE(CAST(j.code ->> 'limit' AS integer), ordinal + 1) OFFSET 0) i
    CROSS JOIN generate_series(0, j.repeats - 1) r
    WHERE j.id = ANY($1) AND (j.pipeline NOT IN ('imported', 'measured') OR EXISTS (SELECT 1 FROM given g WHERE g.job = j.public_id AND g.ordinal = i.ordinal AND g.repeat = r OFFSET 0)) ORDER BY j.id, r, i.ordinal


    INSERT INTO steps (sample_id, position, slot, call_id, created)
    SELECT * FROM unnest(CAST($1 AS bigint[]), CAST($2 AS smallint[]), CAST($3 AS smallint[]),
                         CAST($4 AS bigint[]), CAST($5 AS boolean[]))


    SELECT c.key, c.id, a.reply
    FROM unnest(CAST($1 AS bytea[])) u(key),
        LATERAL (SELECT id, key FROM calls WHERE key = u.key AND NOT failed OFFSET 0) c
        LEFT JOIN LATERAL (SELECT a.reply FROM attempts a WHERE a.accepted AND a.call_id = c.id OFFSET 0) a ON true


    SELECT call_id, outcome, worker, created_at FROM attempts WHERE call_id = ANY($1) AND NOT accepted
    ORDER BY call_id, id


    SELECT d.problem FROM corpus_documents c JOIN documents d ON d.hash = c.hash
    WHERE c.corpus_id = $1 ORDER BY c.ordinal LIMIT 1


    SELECT i.kind, encode(i.signature, 'hex') AS signature, encode(i.file_hash, 'hex') AS file_hash, i.documents,
        i.params
    FROM corpora c JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) WHERE c.id = $1


    SELECT i.kind, m.id, m.hash FROM corpora c
    JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) AND i.state = 'ready'
    JOIN models m ON m.id = i.model_id WHERE c.id = $1


    SELECT j.id, j.state FROM jobs j WHERE j.ended_at IS NULL AND j.total <= $1 AND CASE j.state
        WHEN 'preparing' THEN EXISTS (
            SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.kind = 'prepare' AND +s.state IN (2, 3) OFFSET 0)
        WHEN 'running' THEN NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state IN (0, 1) OFFSET 0)
        ELSE j.state IN ('cancelling', 'finalizing') END ORDER BY j.id


    SELECT j.public_id::text AS job, j.pipeline, encode(j.pipeline_hash, 'hex') AS pipeline_hash, j.params, j.pins,
        j.repeats, j.reuse, j.total, j.code, j.created_at, encode(sha256(j.prepared), 'hex') AS prepared,
        encode(o.record_hash, 'hex') AS preparation, d.name AS dataset, encode(d.hash, 'hex') AS dataset_hash,
        k.name AS corpus, encode(k.hash, 'hex') AS corpus_hash
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'prepare'
    LEFT JOIN outcomes o ON o.sample_id = s.id WHERE j.id = $1


    SELECT m.id, m.needs_lease, m.device, CAST(m.options ->> 'parallel' AS integer) AS slots,
        o.model_id IS NOT NULL AS away
    FROM models m LEFT JOIN outages o ON o.model_id = m.id
    WHERE m.served AND (m.backend = 'miner') = $1
        AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = $2 AND q.model_id = m.id AND q.token IS NULL OFFSET 0)
    ORDER BY m.id


    SELECT name FROM unnest(CAST($1 AS text[])) n(name)
    WHERE NOT pg_try_advisory_xact_lock(hashtextextended(name, $2))


    SELECT name, public_id, state, project FROM jobs
    WHERE name = ANY($1) AND NOT online AND public_id IS DISTINCT FROM $2 ORDER BY id LIMIT 1


    SELECT project FROM (
        SELECT project FROM datasets WHERE name = ANY($1)
        UNION ALL SELECT project FROM corpora WHERE name = ANY($2)
        UNION ALL SELECT project FROM graphs WHERE name = ANY($3)
        UNION ALL SELECT project FROM jobs WHERE public_id = ANY(CAST($4 AS uuid[]))) named
    WHERE project IS NOT NULL GROUP BY project ORDER BY project


    SELECT r.seq, r.hash, s.ordinal, s.repeat
    FROM records r, LATERAL (SELECT ordinal, repeat FROM samples WHERE id = r.sample_id OFFSET 0) s
    WHERE r.job_id = $1 ORDER BY r.seq DESC LIMIT 1


    SELECT s.failure, s.detail, o.outcome FROM samples s
        LEFT JOIN LATERAL (SELECT outcome FROM outcomes WHERE sample_id = s.id OFFSET 0) o ON true
    WHERE s.job_id = $1 AND s.kind = 'prepare' AND +s.state IN (2, 3)


    SELECT s.id, s.job_id, s.kind, s.repeat, s.position, i.ordinal, i.question, i.gold, i.custom_id, i.expected,
        i.query, g.content AS given, j.public_id::text AS public_id, (CAST(j.rank AS bigint) << 47) + (5040 * COALESCE(CAST(j.code ->> 'turn' AS bigint), 0) + COALESCE(CAST(j.code ->> 'turn_part' AS bigint), 0)) + CAST(5040 AS bigint) * (s.repeat * (j.total / j.repeats) + s.ordinal) / COALESCE(CAST(j.code ->> 'weight' AS bigint), 1) AS place
    FROM (SELECT * FROM jobs j
          WHERE j.ended_at IS NULL AND j.state IN ('preparing', 'running') AND (j.code -> 'plugins' IS NULL OR j.code -> 'plugins' <@ CAST($1 AS jsonb)) ORDER BY j.rank, j.id OFFSET 0) j,
        LATERAL (SELECT * FROM samples WHERE job_id = j.id AND state = 0 LIMIT $2
                 FOR NO KEY UPDATE SKIP LOCKED) s
        LEFT JOIN LATERAL (SELECT * FROM items i WHERE i.dataset_id = j.dataset_id AND i.ordinal = s.ordinal OFFSET 0) i ON s.kind = 'item'
        LEFT JOIN LATERAL (SELECT * FROM given g WHERE g.job = j.public_id AND g.ordinal = s.ordinal AND g.repeat = s.repeat AND s.kind = 'item' AND j.pipeline IN ('imported', 'measured', 'conversation', 'embedding', 'write-questions') OFFSET 0) g ON true LIMIT $2


    SELECT t.sample_id, c.id, t.position, t.slot, t.created, encode(c.key, 'hex'), c.created_at, a.outcome,
        encode(sha256(a.reply), 'hex'), a.worker, a.device, a.epoch, a.started_at, a.ended_at, a.created_at,
        a.concurrency, encode(a.prompt_hash, 'hex'), a.prompt_tokens, a.completion_tokens, a.finish_reason,
        a.prompt_ms, a.completion_ms, a.trace_id, a.cached_tokens
    FROM unnest(CAST($1 AS bigint[]), CAST($2 AS integer[])) u(id, consumed)
        CROSS JOIN LATERAL (SELECT * FROM steps WHERE sample_id = u.id OFFSET 0) t
        CROSS JOIN LATERAL (SELECT * FROM calls WHERE id = t.call_id OFFSET 0) c
        LEFT JOIN LATERAL (SELECT * FROM attempts a WHERE a.accepted AND a.call_id = c.id OFFSET 0) a ON t.position < u.consumed
    ORDER BY t.sample_id, t.position, t.slot


    SELECT t.sample_id, t.position, c.key, c.id, a.reply
    FROM (SELECT * FROM steps WHERE sample_id = ANY($1) OFFSET 0) t,
        LATERAL (SELECT id, key FROM calls WHERE id = t.call_id OFFSET 0) c
        LEFT JOIN LATERAL (SELECT a.reply FROM attempts a WHERE a.accepted AND a.call_id = c.id OFFSET 0) a ON true
    ORDER BY t.sample_id, t.position, t.slot


    UPDATE jobs SET state = 'running', prepared = $1, running_at = clock_timestamp(), version = version + 1
    WHERE id = ANY($2) AND state = 'preparing' RETURNING id


    UPDATE jobs SET state = CASE state WHEN 'finalizing' THEN 'completed' ELSE 'cancelled' END, chain = $1,
        reason = NULL,
        ended_at = clock_timestamp(), version = version + 1
    WHERE id = $2 AND ended_at IS NULL AND state IN ('finalizing', 'cancelling') RETURNING id


    UPDATE jobs j SET state = 'finalizing', version = version + 1
    WHERE j.id = $1 AND j.state = 'running'
        AND NOT EXISTS (SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state IN (0, 1))
    RETURNING j.id


    UPDATE samples s SET ended_at = clock_timestamp(), (state, position, failure, detail) = (
        SELECT u.state, u.position, u.failure, u.detail
        FROM unnest(CAST($1 AS bigint[]), CAST($2 AS smallint[]), CAST($3 AS smallint[]),
            CAST($4 AS text[]), CAST($5 AS text[])) u(id, state, position, failure, detail)
        WHERE u.id = s.id) WHERE s.id = ANY($1) AND +s.state = 0


    UPDATE samples s SET state = 1, position = (
        SELECT u.position FROM unnest(CAST($1 AS bigint[]), CAST($2 AS smallint[])) u(id, position)
        WHERE u.id = s.id) WHERE s.id = ANY($1) AND +s.state = 0


    WITH batch AS MATERIALIZED (
        SELECT * FROM samples WHERE job_id = $1 AND kind = 'item' AND (ordinal, repeat) > ($2, $3)
        ORDER BY ordinal, repeat LIMIT $4)
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id,
        encode(i.hash, 'hex') AS item, encode(sha256(o.outcome), 'hex') AS outcome,
        CASE s.state WHEN 4 THEN s.position - 1 ELSE s.position END AS consumed
    FROM batch s, LATERAL (SELECT dataset_id FROM jobs WHERE id = s.job_id OFFSET 0) j,
        LATERAL (SELECT custom_id, hash FROM items i WHERE i.dataset_id = j.dataset_id AND i.ordinal = s.ordinal OFFSET 0) i
        LEFT JOIN LATERAL (SELECT outcome FROM outcomes WHERE sample_id = s.id OFFSET 0) o ON true
    ORDER BY s.ordinal, s.repeat


    WITH live AS (SELECT min(id) AS oldest, min((5040 * COALESCE(CAST(j.code ->> 'turn' AS bigint), 0) + COALESCE(CAST(j.code ->> 'turn_part' AS bigint), 0))) AS turn FROM jobs j WHERE ended_at IS NULL)
    SELECT GREATEST(COALESCE(live.turn, 0), COALESCE(
            (SELECT (5040 * COALESCE(CAST(j.code ->> 'turn' AS bigint), 0) + COALESCE(CAST(j.code ->> 'turn_part' AS bigint), 0)) + (CAST(5040 AS bigint) * total + COALESCE(CAST(j.code ->> 'weight' AS bigint), 1) - 1) / COALESCE(CAST(j.code ->> 'weight' AS bigint), 1) FROM jobs j
             WHERE code ->> 'submitted_by' IS NOT DISTINCT FROM $1 AND id >= live.oldest ORDER BY id DESC LIMIT 1),
            0)) AS turn,
        COALESCE((SELECT weight FROM api_keys WHERE name = $1 ORDER BY (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())) DESC, id DESC LIMIT 1), 1) AS weight
    FROM live


    WITH locked AS MATERIALIZED (
        SELECT call_id, token FROM queue WHERE call_id = ANY($1) AND token = ANY($2)
        ORDER BY call_id FOR UPDATE),
    held AS MATERIALIZED (
        SELECT u.*, l.token AS held_token FROM locked l JOIN unnest(
            CAST($1 AS bigint[]), CAST($2 AS uuid[]), CAST($3 AS text[]), CAST($4 AS bytea[]),
            CAST($5 AS text[]), CAST($6 AS bigint[]), CAST($7 AS timestamptz[]),
            CAST($8 AS timestamptz[]), CAST($9 AS smallint[]), CAST($10 AS bytea[]),
            CAST($11 AS integer[]), CAST($12 AS integer[]), CAST($13 AS integer[]),
            CAST($14 AS text[]), CAST($15 AS real[]), CAST($16 AS real[]),
            CAST($17 AS text[]))
            u(call_id, token, outcome, reply, device, epoch, started_at, ended_at, concurrency, prompt_hash,
              prompt_tokens, cached_tokens, completion_tokens, finish_reason, prompt_ms, completion_ms, trace_id)
        ON u.call_id = l.call_id AND u.token = l.token),
    gone AS (DELETE FROM queue WHERE call_id = ANY(ARRAY(SELECT call_id FROM held)))
    INSERT INTO attempts (call_id, accepted, token, outcome, reply, worker, device, epoch, started_at, ended_at,
                          concurrency, prompt_hash, prompt_tokens, cached_tokens, completion_tokens, finish_reason,
                          prompt_ms, completion_ms, trace_id)
    SELECT call_id, true, held_token, outcome, reply, $18, device, epoch, started_at, ended_at, concurrency,
           prompt_hash, prompt_tokens, cached_tokens, completion_tokens, finish_reason, prompt_ms, completion_ms,
           trace_id FROM held
    ON CONFLICT (call_id) WHERE accepted DO NOTHING RETURNING call_id


    WITH picked AS MATERIALIZED (
    SELECT q.call_id AS id FROM queue q
    WHERE q.lane = $1 AND q.model_id = $2 AND q.token IS NULL
      AND (q.not_before IS NULL OR q.not_before <= now()
           OR q.not_before > now() + make_interval(secs => 600)) AND q.lapses = 0
          AND NOT EXISTS (SELECT 1 FROM queue s WHERE s.lane = $1 AND s.model_id = $2 AND s.lapses > 0
                          AND s.token IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM outages o WHERE o.model_id = $2)
        ORDER BY q.place, q.seq LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)
    , seen AS MATERIALIZED (SELECT u.*, EXISTS (
        SELECT 1 FROM (SELECT sample_id, position FROM steps WHERE call_id = u.id OFFSET 0) t,
            LATERAL (SELECT job_id, state, position FROM samples WHERE id = t.sample_id OFFSET 0) s,
            LATERAL (SELECT state FROM jobs WHERE id = s.job_id OFFSET 0) j
        WHERE s.state = 1 AND s.position = t.position + 1 AND j.state IN ('preparing', 'running')) AS wanted FROM picked u),
    claimed AS (
        UPDATE queue SET token = $4, claim_until = now() + make_interval(secs => $5)
        WHERE call_id = ANY(ARRAY(SELECT id FROM seen WHERE wanted))),
    parked AS (DELETE FROM queue WHERE call_id = ANY(ARRAY(SELECT id FROM seen WHERE NOT wanted))),
    trying AS (
        UPDATE outages SET next_try = now() + make_interval(secs => 30.0)
        WHERE model_id = $2 AND EXISTS (SELECT 1 FROM seen p WHERE p.wanted) RETURNING model_id)
    SELECT c.id, c.key, c.role, c.model_id, m.device, c.request, p.wanted, EXISTS (SELECT 1 FROM trying) AS tries
    FROM seen p, LATERAL (SELECT * FROM calls WHERE id = p.id OFFSET 0) c,
        LATERAL (SELECT device FROM models WHERE id = c.model_id OFFSET 0) m ORDER BY c.id


    WITH picked AS MATERIALIZED (
    SELECT q.call_id AS id FROM queue q
    WHERE q.lane = $1 AND q.model_id = $2 AND q.token IS NULL
      AND (q.not_before IS NULL OR q.not_before <= now()
           OR q.not_before > now() + make_interval(secs => 600)) AND q.lapses > 0
          AND NOT EXISTS (SELECT 1 FROM queue s WHERE s.lane = $1 AND s.model_id = $2 AND s.token IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM outages o WHERE o.model_id = $2 AND NOT (o.next_try <= now() OR o.next_try > now() + make_interval(secs => 600)))
        ORDER BY q.place, q.seq LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    , seen AS MATERIALIZED (SELECT u.*, EXISTS (
        SELECT 1 FROM (SELECT sample_id, position FROM steps WHERE call_id = u.id OFFSET 0) t,
            LATERAL (SELECT job_id, state, position FROM samples WHERE id = t.sample_id OFFSET 0) s,
            LATERAL (SELECT state FROM jobs WHERE id = s.job_id OFFSET 0) j
        WHERE s.state = 1 AND s.position = t.position + 1 AND j.state IN ('preparing', 'running')) AS wanted FROM picked u),
    claimed AS (
        UPDATE queue SET token = $3, claim_until = now() + make_interval(secs => $4)
        WHERE call_id = ANY(ARRAY(SELECT id FROM seen WHERE wanted))),
    parked AS (DELETE FROM queue WHERE call_id = ANY(ARRAY(SELECT id FROM seen WHERE NOT wanted))),
    trying AS (
        UPDATE outages SET next_try = now() + make_interval(secs => 30.0)
        WHERE model_id = $2 AND EXISTS (SELECT 1 FROM seen p WHERE p.wanted) RETURNING model_id)
    SELECT c.id, c.key, c.role, c.model_id, m.device, c.request, p.wanted, EXISTS (SELECT 1 FROM trying) AS tries
    FROM seen p, LATERAL (SELECT * FROM calls WHERE id = p.id OFFSET 0) c,
        LATERAL (SELECT device FROM models WHERE id = c.model_id OFFSET 0) m ORDER BY c.id


    WITH waiting AS MATERIALIZED (
        SELECT DISTINCT t.sample_id AS id, t.position + 1 AS position FROM unnest(CAST($1 AS bigint[])) u(call_id),
            LATERAL (SELECT sample_id, position FROM steps WHERE call_id = u.call_id OFFSET 0) t)
    , complete AS MATERIALIZED (
        SELECT w.id, w.position
        FROM waiting w, LATERAL (SELECT state, position FROM samples WHERE id = w.id OFFSET 0) s
        WHERE s.state = 1 AND s.position = w.position AND NOT EXISTS (
            SELECT 1 FROM steps t WHERE t.sample_id = w.id AND t.position = w.position - 1
            AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.accepted AND a.call_id = t.call_id OFFSET 0) OFFSET 0)),
    ready AS MATERIALIZED (
        SELECT s.id FROM samples s WHERE s.id = ANY(ARRAY(SELECT id FROM complete)) AND +s.state = 1
            AND EXISTS (SELECT 1 FROM complete c WHERE c.id = s.id AND c.position = s.position OFFSET 0)
        ORDER BY s.id FOR NO KEY UPDATE)
    UPDATE samples SET state = 0 WHERE id = ANY(ARRAY(SELECT id FROM ready)) RETURNING id

INSERT INTO residencies (epoch, device, previous_epoch, models, cause, state, opened_at) SELECT 1, 'cpu:0', 0, array_agg(id), 'first', 'open', now() FROM models WHERE needs_lease ON CONFLICT DO NOTHING

SELECT count(*) FROM (SELECT FROM jobs WHERE ended_at IS NULL LIMIT $1) live

SELECT count(*) FROM attempts

SELECT count(*) FROM jobs

SELECT documents FROM corpora WHERE id = $1

SELECT encode(ids, 'hex') FROM corpora WHERE id = $1

SELECT hash, problem, body FROM documents WHERE hash = ANY($1)

SELECT id FROM corpora WHERE name = $1

SELECT id, hash FROM models WHERE hash = ANY($1)

SELECT id, hash, digest FROM models WHERE name = $1 AND served ORDER BY registered_at DESC LIMIT 1

SELECT id, items, grader FROM datasets WHERE name = $1

SELECT id, public_id::text AS public_id, pipeline, encode(pipeline_hash, 'hex') AS pipeline_hash, code ->> 'version' AS version, code ->> 'commit' AS commit, params, pins, reuse, dataset_id, corpus_id, prepared, CAST(code ->> 'limit' AS integer) AS item_limit FROM jobs WHERE id = ANY($1)

SELECT ordinal, question, gold, custom_id, expected, query FROM items WHERE dataset_id = $1 AND ordinal < COALESCE(CAST($2 AS integer), ordinal + 1) ORDER BY sha256(CAST($3 AS bytea) || hash), ordinal LIMIT $4

SELECT pg_advisory_xact_lock($1, $2)

SELECT pg_advisory_xact_lock_shared($1, $2)

SELECT pg_try_advisory_xact_lock($1, CAST($2 AS integer))

SELECT set_config('mathrag.project', $1, true), row_security_active('jobs') AS limited

SELECT version_num FROM alembic_version

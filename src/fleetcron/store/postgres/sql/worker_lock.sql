-- Worker sessions to end: those named in $2 and, if $3, those past their time. FOR UPDATE: a claim under way is waited for, a later one
-- waits for us and then finds no session. A statement of its own, before the one that takes the leases: that one must see the leases of the
-- claims waited for (in one statement they were left behind, held by nobody). In id order. Index: worker_pkey; the table is small.
SELECT w.id FROM fleetcron.worker w
WHERE w.id = ANY ($2::bigint[]) OR ($3 AND w.expires_at < coalesce($1::timestamptz, clock_timestamp())) ORDER BY w.id FOR UPDATE

-- Note how far a schedule has been judged, its next tick, and what no run has been told of yet. The schedule is locked by this transaction.
UPDATE fleetcron.schedule SET judged_until = greatest(judged_until, $2), next_at = $3, prev_at = coalesce($4, prev_at), owed = $5::json
WHERE id = $1

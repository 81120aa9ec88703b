-- Note how far a schedule has been judged (never less far), its next tick, and what no run has been told of yet.
UPDATE schedule SET judged_until = coalesce(max(judged_until, ?2), judged_until, ?2), next_at = ?3, prev_at = coalesce(?4, prev_at), owed = ?5
WHERE id = ?1

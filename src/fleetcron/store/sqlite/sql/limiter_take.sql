-- So many tokens of a rate are taken. Index: limiter's key.
UPDATE limiter SET tat = max(tat, ?1) + ?4 * per, filled_at = iif(tat <= ?1, ?1, filled_at) WHERE kind = ?2 AND name = ?3 AND per IS NOT NULL

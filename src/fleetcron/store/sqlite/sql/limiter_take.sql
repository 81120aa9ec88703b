-- So many tokens of a tenant's rate are taken. Index: limiter's key.
UPDATE limiter SET tat = max(tat, ?1) + ?3 * per, filled_at = iif(tat <= ?1, ?1, filled_at) WHERE kind = 'tenant' AND name = ?2 AND per IS NOT NULL

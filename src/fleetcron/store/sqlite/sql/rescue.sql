-- Dead worker sessions go: suspects (?2, JSON) that were seen dead, and, if ?3, those past their time.
-- Their leases are dealt with in the same transaction.
DELETE FROM worker WHERE (?3 AND expires_at < ?1) OR id IN (SELECT value FROM json_each(?2)) RETURNING id

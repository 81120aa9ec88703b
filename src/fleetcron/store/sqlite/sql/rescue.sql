-- Dead worker sessions go: those past their time, and suspects (?2, JSON) that were seen dead. Their leases are dealt with in the same transaction.
DELETE FROM worker WHERE expires_at < ?1 OR id IN (SELECT value FROM json_each(?2)) RETURNING id

-- Renew a worker session, whatever it runs: one row. No row: it was rescued, or has ended. One past its time that nobody has
-- rescued is renewed: its runs are still its own, and nothing is run again when the file was locked for longer than a lease.
UPDATE worker SET heartbeat_at = ?1, expires_at = ?1 + ?3 WHERE id = ?2 RETURNING id

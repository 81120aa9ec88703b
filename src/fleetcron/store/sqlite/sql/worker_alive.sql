-- Is this worker session in force? A rescue waits for our transaction, or has made this find nothing.
SELECT 1 FROM worker WHERE id = ?2 AND expires_at > ?1

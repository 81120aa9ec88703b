-- Say why a schedule cannot be evaluated on this node (unknown zone …), or NULL: it can.
UPDATE schedule SET error = ?2, revision = revision + 1 WHERE id = ?1

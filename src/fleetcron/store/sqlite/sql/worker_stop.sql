-- A worker session ends in order.
DELETE FROM worker WHERE id = ?1 RETURNING id

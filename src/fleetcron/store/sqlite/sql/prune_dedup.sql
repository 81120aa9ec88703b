-- Dedup keys whose time has passed.
DELETE FROM dedup WHERE until < ?1

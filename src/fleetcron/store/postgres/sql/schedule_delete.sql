-- Remove a schedule that this transaction has locked.
DELETE FROM fleetcron.schedule WHERE id = $1

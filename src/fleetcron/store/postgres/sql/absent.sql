-- Worker sessions whose presence lock nobody holds.
SELECT w.id FROM fleetcron.worker w
WHERE w.presence AND NOT EXISTS (
    SELECT 1 FROM pg_locks k WHERE k.locktype = 'advisory' AND k.objsubid = 2 AND k.granted
        AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND k.classid::bigint = hashtext('fleetcron.worker')::bigint & 4294967295 AND k.objid::bigint = w.id)

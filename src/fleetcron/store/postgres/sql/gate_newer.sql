-- Is a newer tick than $2 at this gate, holding it or waiting? Index: lease_gate, parked_pkey, run_pkey.
SELECT EXISTS (
    SELECT 1 FROM fleetcron.lease l JOIN fleetcron.run r ON r.id = ANY (ARRAY[l.run_id]) WHERE l.gate = $1 AND r.nominal_at > $2
    UNION ALL
    SELECT 1 FROM fleetcron.parked p JOIN fleetcron.run r ON r.id = ANY (ARRAY[p.run_id]) WHERE p.gate = $1 AND r.nominal_at > $2)

-- Is a newer tick than ?2 at this gate, holding it or waiting? Index: lease_gate, parked's key, run's id.
SELECT EXISTS (
    SELECT 1 FROM lease l CROSS JOIN run r WHERE l.gate = ?1 AND r.id = l.run_id AND r.nominal_at > ?2
    UNION ALL
    SELECT 1 FROM parked p CROSS JOIN run r WHERE p.gate = ?1 AND r.id = p.run_id AND r.nominal_at > ?2)

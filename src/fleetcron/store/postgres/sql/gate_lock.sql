-- The mutex of a gate, for the length of an admission. Index: gate_pkey. Callers take gates in name order.
INSERT INTO fleetcron.gate (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING name

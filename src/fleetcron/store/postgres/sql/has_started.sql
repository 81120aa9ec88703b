-- Has this run had a start? A claim does not write the run; what ends an attempt without success does. Index: run_pkey.
SELECT started_at IS NOT NULL FROM fleetcron.run WHERE id = $1

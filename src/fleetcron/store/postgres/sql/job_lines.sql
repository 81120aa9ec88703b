-- The limited jobs that have a line, by a loose scan of their gates: one probe each. Index: parked_pkey.
WITH RECURSIVE g AS (
    (SELECT gate FROM fleetcron.parked WHERE gate >= 'job:' AND gate < 'job;' ORDER BY gate LIMIT 1)
    UNION ALL
    SELECT (SELECT p.gate FROM fleetcron.parked p WHERE p.gate > g.gate AND p.gate < 'job;' ORDER BY p.gate LIMIT 1) FROM g WHERE g.gate IS NOT NULL)
SELECT substr(gate, 5) AS name FROM g WHERE gate IS NOT NULL

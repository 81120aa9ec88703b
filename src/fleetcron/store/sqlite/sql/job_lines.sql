-- The limited jobs that have a line, by a loose scan of their gates: one probe each. Index: parked's key.
WITH RECURSIVE g(gate) AS (
    SELECT min(gate) FROM parked WHERE gate >= 'job:' AND gate < 'job;'
    UNION ALL
    SELECT (SELECT min(p.gate) FROM parked p WHERE p.gate > g.gate AND p.gate < 'job;') FROM g WHERE g.gate IS NOT NULL)
SELECT substr(gate, 5) AS name FROM g WHERE gate IS NOT NULL

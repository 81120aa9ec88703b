-- Ticks of the future were never due: their runs go without a trace, and the new definition may name the instant again.
DELETE FROM run WHERE id IN (SELECT value FROM json_each(?1))

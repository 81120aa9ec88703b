-- The time at which this transaction began.
SELECT now()

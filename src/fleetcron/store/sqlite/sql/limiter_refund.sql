-- A token taken at ?2 is given back, unless the bucket has been full since: then it has been of no use. Index: limiter's key.
UPDATE limiter SET tat = tat - per WHERE kind = 'tenant' AND name = ?1 AND per IS NOT NULL AND ?2 >= filled_at

-- Look at the database and write that down: for how long has some scheduler node seen it, once a second, without a gap of 3 s?
UPDATE watch SET since = iif(seen < ?1 - 3000000 OR seen > ?1, ?1, since), seen = ?1 WHERE id = 1 RETURNING seen - since

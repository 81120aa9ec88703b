-- A node leaves; nodes that have been silent since ?1 go too.
DELETE FROM node WHERE node = ?2 OR expires_at < ?1

-- Schedulers that have been silent since ?1 go.
DELETE FROM scheduler WHERE expires_at < ?1

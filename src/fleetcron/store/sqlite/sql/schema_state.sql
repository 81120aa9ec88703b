-- Is there a schema? Must not fail on an empty database.
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta')

-- A claimed run is leased.
INSERT INTO lease (worker, run_id, fence, attempt, started_at) VALUES (?1, ?2, ?3, ?4, ?5)

-- A claimed run is leased. Claimed before it is due: it starts then, and is "ahead" until it is known to have started.
INSERT INTO lease (worker, run_id, fence, attempt, started_at, ahead) VALUES (?2, ?3, ?4, ?5, max(?6, ?1), ?6 > ?1)

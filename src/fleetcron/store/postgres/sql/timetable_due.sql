-- Is a run due within half a minute that the leader has not promoted, as it should have a minute ago? Index: timetable_pkey.
SELECT EXISTS (SELECT 1 FROM fleetcron.timetable WHERE due_at <= coalesce($1::timestamptz, now()) + interval '30 seconds')

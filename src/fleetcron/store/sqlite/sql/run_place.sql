-- What tells where an open run waits: the keys of `ready`, `timetable` and `parked`. Index: run's id.
SELECT id, queue, priority, tenant, due_at, gate, state FROM run WHERE id = ?1

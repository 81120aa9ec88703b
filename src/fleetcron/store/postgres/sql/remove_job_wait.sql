-- Wait for every transaction that has put a run where runs wait, and keep new ones out until this one ends: who inserts a run has looked for
-- its job before, and nobody sees the run before its commit. Not for long (the caller sets lock_timeout): claims stand in line behind this.
LOCK TABLE fleetcron.ready, fleetcron.timetable IN SHARE MODE

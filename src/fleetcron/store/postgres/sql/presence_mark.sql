-- From now on the absence of this session's presence lock means something.
UPDATE fleetcron.worker SET presence = true WHERE id = $1

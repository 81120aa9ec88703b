-- Worker sessions on one host, and what tells their processes apart.
SELECT id, pid, pid_started FROM worker WHERE host = ?1

"""Plans of PostgreSQL's hot statements, with statistics as stale as they get."""

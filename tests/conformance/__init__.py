"""What every store must do: one suite, run on SQLite and on PostgreSQL."""

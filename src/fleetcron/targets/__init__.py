"""What a run can be besides Python: a shell command, an HTTP call, a message to another system."""

"""What happens when processes die."""

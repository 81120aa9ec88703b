"""House rules that no linter knows."""

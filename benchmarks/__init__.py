"""Benchmarks: one command a scenario, ours and the peers' in the same run, interleaved. See benchmarks/README.md."""

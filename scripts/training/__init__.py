"""Modules of scripts/bench_training: networks, ways to feed them, measuring and reports."""

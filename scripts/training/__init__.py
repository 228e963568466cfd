"""What scripts/bench_training trains, how it is fed, and what becomes of the figures."""

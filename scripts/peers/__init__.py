"""Loaders compared by scripts/bench_peers: a file for each, and what runs, tables and draws them.

`protocol` says what a peer is, `roster` lists them. `compare` packs the cubes for each, tries its
settings and then measures the best of each in rounds; `measure` is one such measurement, in a
process of its own.
"""

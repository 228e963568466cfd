"""Loaders compared by scripts/bench/local_peers: a file for each, modules to measure and report.

`protocol` defines a peer, `roster` lists all peers. `compare` packs the cubes for each peer, tries
its settings, and then measures the best setting of each in rounds. `measure` does one measurement,
in a process of its own.
"""

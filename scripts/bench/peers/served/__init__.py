"""Loaders that read from a server, compared by scripts/bench/server_peers.

`protocol` defines such a peer, `roster` lists all of them. `servers` runs the S3 server and the
link in front of it. `compare` packs the cubes for each peer, uploads them to the server, tries
settings, and measures the best setting of each in rounds. `measure` does one measurement. Packing
and decoding use the code of the peers on files, in the folder above.
"""

"""Loaders that read from a server, compared by scripts/bench_server_peers.

`protocol` says what such a peer is, `roster` lists them. `servers` runs the S3 server and the link
before it. `compare` packs the cubes for each, puts them on the server, tries settings and measures
the best of each in rounds; `measure` is one such measurement. What packs and decodes is that of the
peers on files, in the folder above.
"""

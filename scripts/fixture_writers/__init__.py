"""One module a format: each writes its fixtures with an independent library."""

"""One module for each format. Each writes its fixtures with an independent library."""

"""A node: one process with its parts. The only file that names concrete adapters."""

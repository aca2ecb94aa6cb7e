"""What an operator runs beside a node, and without one: doctor, migrate, promote, rotate, verify.

`offline.py` opens the database of nodes that may be running. Nothing here starts a node.
"""

"""Commands that an operator runs next to running nodes, or without any: doctor, migrate, promote, rotate, verify.

`offline.py` opens a database whose nodes may be running. No command here starts a node.
"""

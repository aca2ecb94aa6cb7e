"""Encrypts secrets with AES-256-GCM. Keys come from a setting or from a file. `duetime keys` rotates them.

Light on purpose: `settings` reads keys, and the command line must not load a cryptographic library for its help.
"""

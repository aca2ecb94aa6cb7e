"""Stores: each file is one backend of `ports.store`. They share a contract suite, not code."""

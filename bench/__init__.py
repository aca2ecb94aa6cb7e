"""Benchmarks: Duetime, its peers and the bare limits of the same machine, measured in one run.

Run with `make bench`, or `.venv/bin/python -m bench --quick`. Only ratios within one run mean anything: the
absolute figures belong to the machine. Nothing here is imported by the product or by its tests.
"""

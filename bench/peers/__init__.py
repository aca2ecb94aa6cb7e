"""The peers: other schedulers that do the same work, each set up as its own documentation recommends for throughput.

Each is a process with one contract: it takes an `Order` as JSON in argv, stores every job, prints `stored`, and then
fires them until SIGTERM. Python peers run in a virtual environment of their own, `.peers`.
"""

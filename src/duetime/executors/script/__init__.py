"""Script jobs: untrusted programs, run as processes that can neither outlive their attempt nor exhaust the machine.

    node (executor, run, link) ── socket ──► fork server: one per node, forks a supervisor for each script
      │                                        │
      └── a socket and pipes per script ────► supervisor: forks the script, watches it, kills all that it left behind

A node is large and has threads, so forking it is slow and unsafe. The fork server is small and has one thread. A
supervisor is the sub-reaper of its script: a process that daemonises becomes the supervisor's child. So "no children
left" proves that nothing of the script is left, whatever it did to its session, group or environment. The node ends a
supervisor through its socket, which also closes when the node dies. A supervisor keeps running if the fork server dies.
If a supervisor is killed, the fork server inherits its processes and kills them.

The fork server, the supervisor and the modules that they import run outside the node's environment. They use only the
standard library, and no other part of Duetime. For that reason this file must import nothing.
"""

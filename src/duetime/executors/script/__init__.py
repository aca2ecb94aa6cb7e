"""Script jobs: programs of strangers, run as processes that can neither outlive their run nor take the machine.

    node (executor, run, link) ── socket ──► fork server: one a node, forks a supervisor for each script
      │                                        │
      └── socket, one a script, and pipes ──► supervisor: forks the script, watches it, ends all that it left behind

A node is large and has threads, so forking it is slow and unsafe. The fork server is small and has one thread. A
supervisor is the sub-reaper of its script: a process that daemonises becomes the supervisor's child. So "no children
left" proves that nothing of the script is left, whatever it did to its session, group or environment. The node ends a
supervisor through its socket, which also closes when the node dies. A supervisor does not need the fork server to go
on. If a supervisor is killed, the fork server inherits its processes and ends them.

The fork server, the supervisor and what they import run outside the node's environment. They use the standard library
and nothing else of Duetime. This file stays empty for that reason.
"""

"""Script jobs: programs of strangers, run as processes that can neither outlive their run nor take the machine.

    node (executor, run, link) ── socket ──► keeper: one a node, forks a warden for each script
      │                                        │
      └── socket, one a script, and pipes ──► warden: forks the script, watches it, ends all that it left behind

The keeper exists because a small process with one thread forks fast and safely, and the node is neither. A warden is
the sub-reaper of what its script starts: whoever daemonises becomes the warden's child, so that "no children left"
proves that nothing of the script is left, whatever it did to its session, group or environment. It is told to end by
its socket, and the socket also closes when the node dies; it needs no keeper to go on. If a warden is killed, what it
had falls to the keeper, which ends it.

keeper, warden and what they import run outside the node's environment: only the standard library, nothing else of
Duetime. This file stays empty for that reason.
"""

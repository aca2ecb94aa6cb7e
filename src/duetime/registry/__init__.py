"""The registry: which nodes live, and which of them owns which of the 64 shards.

**Authority.** The registry knows who may own a shard; the store knows who may write. A registry that is wrong (its
clock was set, its disk restored) costs a refused write or a late run, never a doubled one: a new owner *fences* its
epoch into the store before it reads a timer, each fire carries (shard, epoch), and the store refuses an older one in
the same transaction. All that the registry must do for that is to hand out epochs that grow.

**Leases.** A node gets an integer id from the store, joins with it, and has a lease that lives for the ttl
(NODE_LEASE_SECONDS, 5). It renews each second; the answer is a view of the whole cluster, so that one round trip a
second is all an idle node costs. Time is the registry's. The node's own clock serves only to measure how long ago it
sent a renewal: it trusts the lease until sent + ttl − margin (`domain.lease.Trust`) on its monotonic clock, and
needs no agreement with anybody on what time it is.

A lease ends once and for all: its node leaves, a newer node of the same name joins, or it lapses. Lapsing alone only
*permits* the end. What ends it is the first who takes a shard from it, and that is one write on the same row that a
renewal writes: either the renewal comes first, and there is nothing to take, or the end does, and the renewal is
refused. So nobody who had an answer to a renewal can have been robbed before it.

       join                     answered                     until ≤ now
    ──────────► JOINED ───────────────────► TRUSTED ──────────────────────► DOUBTFUL ─┐ asks on,
                  │                         │  ▲  │                          │  │  ▲  │ owns nothing
                  │                         │  └──┘ answered                 │  │  └──┘
                  │                         │  ▲                             │  │
                  │                         │  └──────── answered ───────────┘  │
                  │ refused                 │ refused                           │ refused
                  └────────────────► LOST ◄─┴───────────────────────────────────┘
                                       │
                                       └─► the process starts anew, under another id

    leave, from anywhere: all shards are free and the lease has ended, at once.

**Shards.** A shard has an owner and an epoch. `take` gets those that nobody owns, or whose owner's lease has lapsed or
ended, and adds one to the epoch; `release` gives up. That a shard is free *at an epoch* is final: it stays so until a
take makes the next epoch. That is why a take may judge by what it read and then write where the epoch is still the
same, and why two who take at once can't both get it.

**Spreading** has no leader. Each node applies the same pure rule (`domain.lease.spread`) to the view that came with its
renewal: above its quota it gives up, below it takes what is free. Whoever gives up says so on the bus, and the others
look at once: a node that leaves is replaced within a round trip, and a node that joins has its share after one
heartbeat of the others. A hint that is lost costs one heartbeat more. A node that dies is replaced when its lease
lapses (the view says when, so the others look then). Shards that were given up for a node which then hangs wait until
its lease has lapsed, too.

**When something fails.**
A renewal that is slow or unanswered is sent again; what it did, the next view tells. What a call whose answer was lost
may still do, later: renew (harmless: the lease lives longer than its node believes), take (harmless: the next view
shows it), release (see `domain.lease.believed`), join and leave (both can be repeated).
The registry is away for longer than the ttl: all nodes are doubtful and fire nothing. When it is back, whoever asks
first finds its lease lapsed, is lost, and starts anew. (Nobody could have written to the store either.)
A node is stopped for longer than its lease: its first look at the clock says that it owns nothing. If it was stopped
between the look and the write, the store refuses the write.
The registry's clock is set forward: leases lapse early, and for up to the ttl two nodes may believe that they own a
shard; the fence decides. Set back: a dead node's shards wait longer.

The shard 0 has a second meaning: its owner runs what must run once in the cluster (`domain.lease.runs_housekeeping`).

Adapters: `EmbeddedRegistry` (alone, nothing lapses), `PostgresRegistry`, `MemoryRegistry` (simulations). etcd,
ZooKeeper and NATS key-value fit the same port: a lease, a compare-and-set on (owner, epoch), one key a shard.
"""

"""The registry: which nodes are alive, and which node owns which of the 64 shards.

**Authority.** The registry decides which node may own a shard; the store decides which node may write. A wrong registry
(its clock was set, its disk restored) causes a refused write or a late run, never a duplicate run. A new owner *fences*
the shard: it writes its epoch into the store before it reads a timer. Each fire carries (shard, epoch), and the store
refuses an older epoch in the same transaction. For that, the registry only has to hand out growing epochs.

**Leases.** A node gets an integer id from the store and joins with it. Its lease lasts for the ttl (NODE_LEASE_SECONDS,
5). The node renews it each second. The response is a view of the whole cluster, so an idle node costs one round trip a
second. Expiry is measured by the registry's clock. The node's own clock only measures how long ago it sent a renewal:
the node trusts its lease until sent + ttl − margin (`domain.lease.Trust`) on its monotonic clock. So nodes need not
agree on the time.

A lease that has ended never comes back. It ends when its node leaves, when a newer node of the same name joins, or
after it has expired. Expiry alone only *permits* the end: the lease ends when another node first takes a shard from it.
That is one write to the row that a renewal also writes. Either the renewal comes first, and there is nothing to take,
or the end comes first, and the renewal is refused. So a node whose renewal succeeded can't have lost a shard before it.

       join                     answered                     until ≤ now
    ──────────► JOINED ───────────────────► TRUSTED ──────────────────────► DOUBTFUL ─┐ asks on,
                  │                         │  ▲  │                          │  │  ▲  │ owns nothing
                  │                         │  └──┘ answered                 │  │  └──┘
                  │                         │  ▲                             │  │
                  │                         │  └──────── answered ───────────┘  │
                  │ refused                 │ refused                           │ refused
                  └────────────────► LOST ◄─┴───────────────────────────────────┘
                                       │
                                       └─► the process restarts, under another id

    leave, from any state: all shards are free and the lease has ended, at once.

**Shards.** A shard has an owner and an epoch. `take` gets shards that have no owner, or whose owner's lease has expired
or ended, and adds one to the epoch; `release` gives shards up. A shard that is free *at an epoch* stays free until a
take makes the next epoch. So a take may decide on what it read, and then write only where the epoch is unchanged. And
of two concurrent takes of a shard, only one can succeed.

**Rebalancing** has no leader. Each node applies the same pure rule (`domain.lease.rebalance`) to the view that came
with its renewal: above its quota it gives up shards, below its quota it takes free ones. A node that gives up shards
sends a hint on the bus, and the other nodes look at once. So a node that leaves is replaced within a round trip, and a
node that joins has its share after one heartbeat of the others. A lost hint costs one more heartbeat. A node that dies
is replaced when its lease expires (the view says when, so the others look then). Shards that were given up for a node
which then hangs also wait until that node's lease has expired.

**Failures.**
A renewal that is slow or gets no response is sent again; the next view shows what it did. A call whose response was
lost may still take effect later: renew (harmless: the lease lives longer than its node believes), take (harmless: the
next view shows it), release (see `domain.lease.believed`), join and leave (both can be repeated).
The registry is unreachable for longer than the ttl: all nodes are doubtful and fire nothing. When it is back, the first
node that asks finds its lease expired, is lost, and restarts. (No node could have written to the store either.)
A node is suspended for longer than its lease: its first look at the clock says that it owns nothing. If it was
suspended between that look and a write, the store refuses the write.
The registry's clock is set forward: leases expire early, and for up to the ttl two nodes may believe that they own the
same shard; the fence decides. Set back: a dead node's shards wait longer.

Shard 0 has a second meaning: its owner runs what must run once in the cluster (`domain.lease.runs_housekeeping`).

Adapters: `EmbeddedRegistry` (one node, nothing expires), `PostgresRegistry`, `MemoryRegistry` (simulations). etcd,
ZooKeeper and NATS key-value fit the same port: a lease, a compare-and-set on (owner, epoch), one key per shard.
"""

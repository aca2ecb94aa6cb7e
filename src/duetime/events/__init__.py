"""Events: published by the engine and the API, read by followers (SSE, tests).

`EventHub` has what this node publishes, for its own followers and for the log. `EventFeed` has the log: the events of
all nodes. An event is a hint for people and pages; the store is authoritative.
"""

from duetime.domain.event_log import Event
from duetime.events.feed import ENOUGH, EventFeed, Follower
from duetime.events.hub import LONGEST_QUEUE, PAGE, EventHub, Following

__all__ = ["ENOUGH", "LONGEST_QUEUE", "PAGE", "Event", "EventFeed", "EventHub", "Follower", "Following"]

"""Driver 3: an OpenAI-compatible gateway that keeps each conversation on its warm replica.

In come HTTP requests, out go the same bytes to the replica that `router` chose, and the answer as it
comes. The data path (`listener`, connections, pools) is made for inference requests alone; admin,
metrics and the sessions API are an ordinary ASGI app on another port. Which replica takes a turn is
`router`'s question, what the replicas hold is `fleet`'s; here are sockets, clocks and their wiring.
When upstreams are foreign engines the gateway has no pool, only belief about theirs.
"""

"""Which conversation a request continues, whose it is, and what of it can be spliced back exactly.

In go headers, bodies, texts and ids; out come a session's key, a tenant's salt, where the session
was last, and the ids it will continue with. Knows no replica: that a session is bound to one is
noted here, which one it should be is `router`'s business.
"""

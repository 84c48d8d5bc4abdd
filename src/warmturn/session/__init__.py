"""Which conversation a request continues, and what of it can be spliced back exactly."""

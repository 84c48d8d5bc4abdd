"""One replica's truth: which block of which content lies in which slot."""

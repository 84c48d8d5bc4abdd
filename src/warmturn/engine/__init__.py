"""Driver: the torch executor, paged K/V memory and the OpenAI-compatible server of one replica."""

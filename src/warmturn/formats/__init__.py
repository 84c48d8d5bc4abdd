"""Files and bodies in: OpenAI request bodies now, logs and traces later. Parses and validates; renders nothing."""

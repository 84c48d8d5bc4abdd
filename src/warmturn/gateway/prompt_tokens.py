"""Placeholder until the incremental tokeniser stands here."""


class PromptTokens:
    """Tokenises one model's prompts."""

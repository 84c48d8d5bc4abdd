"""The real exact continuation, with a note of every text it was asked to remember."""

from warmturn.session.continuation import Continuations


class RecordingContinuations(Continuations):
    """`texts` holds each remembered prompt + reply by salt, in order."""

    def __init__(self):
        super().__init__(max_tokens=100_000)
        self.texts = {}

    def remember(self, *, salt, prompt_text, reply_text, **ids):
        self.texts.setdefault(salt, []).append(prompt_text + reply_text)
        super().remember(salt=salt, prompt_text=prompt_text, reply_text=reply_text, **ids)

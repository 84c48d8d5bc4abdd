"""The one error tree.

WarmturnError
├── CallerError            the caller's mistake: HTTP 4xx, exit code 2
│   ├── InvalidRequest     a field of a request is wrong; knows the field's name
│   │   ├── NeverFits      the request is larger than the pool or the model can ever hold
│   │   └── TemplateError  the chat template refused the messages
│   ├── InvalidInput       a file, an option or a setting is wrong or broken
│   │   └── UnsupportedModel   the model's architecture is not one the engine runs
│   ├── Refused            the gateway answers in its own name, with a status
│   └── MissingExtra       an optional dependency is not installed
├── PeerError              the other side failed: network, registry, disk, another server
│   └── GarbledAnswer      what a replica sent is no HTTP answer
├── EngineFailure          the engine could not run a step; HTTP 500, others go on
└── BrokenInvariant        our own mistake: a numbered invariant does not hold

A message says what was asked, what is there, and what to do.
"""


class WarmturnError(Exception):
    """Base of every error this package raises on purpose."""


class CallerError(WarmturnError):
    """The caller asked for something that cannot be done as asked."""


class InvalidRequest(CallerError):
    """A request is refused; `param` names the field, as OpenAI's error object does."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class NeverFits(InvalidRequest):
    """The request needs more tokens or blocks than there will ever be."""


class TemplateError(InvalidRequest):
    """The chat template raised, or is not valid Jinja."""


class InvalidInput(CallerError):
    """A file, an option or a setting is missing, wrong or broken."""


class UnsupportedModel(InvalidInput):
    """The model is well formed but not of an architecture the embedded engine runs."""


class Refused(CallerError):
    """The gateway itself answers: status, OpenAI error code, and when to come again."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.retry_after_s = retry_after_s


class MissingExtra(CallerError):
    """An optional dependency is needed; the message has the pip line that installs it."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what} needs the '{extra}' extra: pip install 'warmturn[{extra}]'")
        self.extra = extra


class PeerError(WarmturnError):
    """Something on the other side failed: a registry, a disk, a server."""


class GarbledAnswer(PeerError):
    """What the replica sent is no HTTP answer."""


class EngineFailure(WarmturnError):
    """The engine failed on a step or stopped; the requests of that step are lost."""


class BrokenInvariant(WarmturnError):
    """An invariant of our own does not hold; always a defect in warmturn."""

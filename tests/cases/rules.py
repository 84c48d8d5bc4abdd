"""What `data/README.md` says in prose about single kinds, as data.

Paths are written `runs.*.pairs.*.verdict`; a star stands for any index or key.
"""

from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]

ABSOLUTE = 1e-4
RELATIVE_ABOVE_1 = 1e-4
ABSOLUTE_OF_FIELD = {"mean_load": 1e-3}
CHARS_OF_FIELD = {"shared_chars": 2, "lost_chars": 2, "first_divergence_char": 2}
"""A token border may fall one or two characters off."""

FOR_PEOPLE = frozenset({"prev_at", "next_at"})
"""Fields that are never compared."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How the answer of one kind is compared, where it differs from the general rule."""

    null_is_an_answer: tuple[str, ...] = ()
    """Null here has to be answered with null; elsewhere it means "not checked"."""
    null_if_append_only: tuple[str, ...] = ()
    """Of these, the ones where that holds only beside the verdict `append-only`."""
    asked: tuple[str, ...] = ()
    """Parts of the question that stand in expected.json; the answer function sees them."""
    asked_keys: tuple[str, ...] = ()
    """Objects whose keys belong to the question; the answer function sees them with nulls."""
    whole_maps: tuple[str, ...] = ()
    """Objects with free keys where a key too many is a wrong answer."""
    unordered: tuple[str, ...] = ()
    """Lists compared as sets."""
    exact_chars: bool = False
    """Character counts have no tolerance."""
    absolute_only: tuple[str, ...] = ()
    """Real numbers without the relative tolerance above 1."""
    tolerance_from: str | None = None
    """The field that holds the relative tolerance of this kind's numbers; itself not compared."""

    def asked_in(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return only those parts of a right answer that belong to the question."""
        patterns = [tuple(pattern.split(".")) for pattern in self.asked]
        asked = _project(answer, patterns) if patterns else {}
        for pattern in self.asked_keys:
            _add_keys(asked, answer, pattern.split("."))
        return asked


def matches(path: Path, patterns: tuple[str, ...]) -> bool:
    """Say whether one of the patterns names this path."""
    return any(_matches_one(path, pattern.split(".")) for pattern in patterns)


def rules_of(kind: str) -> Rules:
    return RULES.get(kind, Rules())


def _matches_one(path: Path, pattern: list[str]) -> bool:
    return len(path) == len(pattern) and all(
        wanted in {"*", step} for step, wanted in zip(path, pattern, strict=True)
    )


def _project(value: Any, patterns: list[tuple[str, ...]]) -> Any:
    if () in patterns:
        return value
    if isinstance(value, list):
        return [_project(item, [p[1:] for p in patterns]) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: [p[1:] for p in patterns if p[0] in {"*", key}] for key in value}
    return {key: _project(value[key], rest) for key, rest in inner.items() if rest}


def _add_keys(asked: Any, answer: Any, pattern: list[str]) -> None:
    """Add to `asked` the objects of `answer` that the pattern names, with nulls for values."""
    step, *rest = pattern
    for key in (
        range(len(answer)) if isinstance(answer, list) else [k for k in answer if step in {"*", k}]
    ):
        inner = answer[key]
        if not isinstance(inner, dict | list):
            continue
        if not rest:
            asked[key] = dict.fromkeys(inner)
            continue
        if isinstance(asked, dict):
            asked.setdefault(key, {})
        _add_keys(asked[key], inner, rest)


RULES: dict[str, Rules] = {
    "request-log": Rules(
        null_is_an_answer=(
            "runs.*.first_level_that_breaks",
            "runs.*.parents.*",
            "runs.*.pairs.*.first_level_that_breaks",
            "runs.*.pairs.*.first_divergence_char",
        ),
        # Pairs of other threads and other models have no level; nothing is asked about it.
        null_if_append_only=("runs.*.pairs.*.first_level_that_breaks",),
        asked=(
            "runs.*.id",
            "runs.*.must_mention",  # the answer lists those that the report contains
            "runs.*.pairs.*.prev",
            "runs.*.pairs.*.next",
            "runs.*.pairs.*.role",
        ),
        whole_maps=("runs.*.parents",),
    ),
    "token-log": Rules(asked=("pairs.*.id", "text_equal"), asked_keys=("pairs.*.reuse.paged",)),
    "render-parity": Rules(asked=("variants.*.text",), exact_chars=True),
    "metrics-text": Rules(
        # Null is "the product must say unknown", whatever the field.
        null_is_an_answer=("files.*.*",),
        whole_maps=("files.*.usage_by_engine", "files.*.hit_rate_by_engine"),
    ),
    "full-hit-cap": Rules(null_is_an_answer=("rows.*.residency",)),
    "calibration": Rules(null_is_an_answer=("probes.*.residency",)),
    "events": Rules(
        asked=("runs.*.id", "runs.*.checkpoints.*.after_line"),
        whole_maps=("runs.*.unknown_events",),
    ),
    "affinity": Rules(asked=("same_worker",)),  # the answer lists the groups that hold
    "stream-usage": Rules(null_is_an_answer=("upstream_stream_options",)),
    "gateway-salt": Rules(asked=("equal_salt", "different_salt")),  # likewise
    "chunk-floor": Rules(null_is_an_answer=("rows.*.stored", "rows.*.error")),
    "reload-or-recompute": Rules(absolute_only=("rows.*.load_s", "rows.*.recompute_s")),
    "geometry": Rules(asked_keys=("answers.*.bytes_at",)),
    "fit-capacity-log": Rules(asked=("relative_tolerance",), tolerance_from="relative_tolerance"),
    "trace-validation": Rules(asked=("accepts.*.block_size", "accepts.*.line")),
    "cache-steps": Rules(unordered=("final_cached",)),
}

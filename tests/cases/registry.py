"""Which kinds the product can answer: one module per part, one function per kind.

A function gets the case (input, files, what is asked; never the right answer), calls the
product's public API and returns the answer as `expected.json` has it. To build a kind, add
the function to the part's `ANSWERS`; to build a part, add its module here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.cases import (
    part_1_checker,
    part_2_eviction,
    part_3_router,
    part_4_salts,
    part_5_offload,
    part_6_planner,
)
from tests.cases.discovery import Case

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind is answered."""

    answer: Callable[[Case], Answer]
    not_built: tuple[str, ...] = ()
    """Fields of the answer that the product cannot give yet. The others are compared, then
    the case is skipped by name: a wrong answer fails, an incomplete one does not pass."""


KINDS: dict[tuple[str, str], Kind] = {
    (part, kind): Kind(*entry)
    for part, answers in {
        "1-checker": part_1_checker.ANSWERS,
        "2-eviction": part_2_eviction.ANSWERS,
        "3-router": part_3_router.ANSWERS,
        "4-salts": part_4_salts.ANSWERS,
        "5-offload": part_5_offload.ANSWERS,
        "6-planner": part_6_planner.ANSWERS,
    }.items()
    for kind, entry in answers.items()
}

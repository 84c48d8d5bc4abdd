"""Real reports, reduced, with the right answer: the product has to give it.

    pytest tests/cases --cases DIR --part 4

The form of a case and the meaning of each kind: `data/README.md`.
"""

from pathlib import Path

import pytest

from tests.cases.compare import differences
from tests.cases.discovery import load_case
from tests.cases.registry import KINDS


def test_the_product_gives_the_right_answer(case_folder: Path):
    case, expected = load_case(case_folder)
    kind = KINDS.get((case.part, case.kind))
    if kind is None:
        pytest.skip(f"{case.name}: kind {case.kind} of part {case.part} is not built yet")
    checked = {key: value for key, value in expected.items() if key not in kind.not_built}
    wrong = differences(case.kind, checked, kind.answer(case))
    assert not wrong, "\n".join(map(str, [f"{case.name}:", *wrong]))
    if kind.not_built:
        pytest.skip(_incomplete(case.name, checked, kind.not_built))


def _incomplete(name: str, checked: dict[str, object], not_built: tuple[str, ...]) -> str:
    return f"{name}: {', '.join(checked)} right; not built: {', '.join(not_built)}"

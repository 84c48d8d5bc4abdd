from collections import Counter

from tests.support.tiny_fleet import source
from warmturn.router import Candidate, ranked

SESSIONS = [f"session-{number}" for number in range(4000)]


def first(session: str, names: list[str], **weights: float) -> str:
    candidates = [Candidate(source(n), weight=weights.get(n, 1.0)) for n in names]
    return ranked(session, candidates)[0].source.replica


def names(num: int) -> list[str]:
    return [f"r{number}" for number in range(num)]


def test_the_order_of_the_list_does_not_matter():
    backwards = names(5)[::-1]
    assert all(first(s, names(5)) == first(s, backwards) for s in SESSIONS[:300])


def test_adding_one_of_n_moves_one_in_n_and_only_to_the_new_one():
    moved = [s for s in SESSIONS if first(s, names(7)) != first(s, names(8))]
    assert abs(len(moved) / len(SESSIONS) - 1 / 8) < 0.02
    assert {first(s, names(8)) for s in moved} == {"r7"}


def test_removing_one_moves_only_its_own():
    left = [n for n in names(5) if n != "r2"]
    moved = {s for s in SESSIONS if first(s, names(5)) != first(s, left)}
    assert moved == {s for s in SESSIONS if first(s, names(5)) == "r2"}


def test_twice_the_weight_ranks_first_for_twice_as_many():
    counts = Counter(first(s, names(4), r0=2.0) for s in SESSIONS)
    assert abs(counts["r0"] / len(SESSIONS) - 2 / 5) < 0.03
    assert all(abs(counts[n] / len(SESSIONS) - 1 / 5) < 0.03 for n in names(4)[1:])


def test_session_and_name_are_not_glued_together():
    one, two = ranked("a", [Candidate(source("bc"))]), ranked("ab", [Candidate(source("c"))])
    assert len(one) == len(two) == 1
    assert ranked("\ud800", [Candidate(source("a"))]), "a lone surrogate is a name too"

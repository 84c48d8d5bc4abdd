import json

import pytest

from tests.support.checked import clock_log
from warmturn.errors import InvalidInput
from warmturn.report import check_data, failure_key, known_failures


def test_the_failures_of_a_report_are_read_back_from_its_json():
    log = clock_log()
    data = json.loads(json.dumps(check_data(log)))
    expected = {failure_key(conversation, turn) for conversation, turn in log.failures()}
    assert known_failures(data, name="old.json") == expected
    assert len(expected) == 2


def test_a_known_failure_fails_no_more_and_is_still_counted():
    known = known_failures(check_data(clock_log()), name="old.json")
    log = clock_log(known=known)
    assert list(log.failures()) == []
    assert log.num_known == 2


def test_a_failure_of_another_turn_is_new():
    log = clock_log(known=frozenset({("clock", 1, "client.timestamp_in_system")}))
    assert [turn.turn for _, turn in log.failures()] == [2]


@pytest.mark.parametrize("data", [[], {}, {"conversations": 3}, {"conversations": [{}]}, "x", None])
def test_what_is_no_report_is_refused_with_the_name_of_the_file(data):
    with pytest.raises(InvalidInput, match=r"old\.json is not a report"):
        known_failures(data, name="old.json")

import json

from tests.support.checked import clock_log
from tests.support.tiny_renderer import TinyTokenizer
from warmturn.report import check_data


def test_the_data_is_json_with_what_was_read_and_found():
    data = json.loads(json.dumps(check_data(clock_log(num_bad_lines=7))))
    assert data["files"] == ["log.jsonl"]
    assert data["num_bad_lines"] == 7
    assert len(data["bad_lines"]) == 5
    assert data["num_new_failures"] == data["num_failures"] == 2
    assert data["conversations"][0]["turns"][1]["cause"] == "client.timestamp_in_system"


def test_lost_tokens_are_not_guessed():
    assert check_data(clock_log())["lost_tokens"] is None
    assert check_data(clock_log(prefill_tokens_per_s=10.0))["lost_ttft_s"] is None


def test_with_a_tokenizer_and_a_rate_they_are_counted():
    data = check_data(clock_log(tokenizer=TinyTokenizer(), prefill_tokens_per_s=100.0))
    assert data["lost_ttft_s"] == data["lost_tokens"] / 100
    assert data["lost_tokens"] > 100

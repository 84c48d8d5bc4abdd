import pytest

from warmturn.session.isolation import IsolationProbe, judge_isolation

A_COLD, B_COLD, B_WARM = IsolationProbe("a", 0), IsolationProbe("b", 0), IsolationProbe("b", 512)


def test_a_new_salt_that_finds_something_is_a_leak():
    verdict = judge_isolation([A_COLD, B_WARM], [])
    assert verdict.evidence == ("cached-tokens-for-new-salt",)
    assert (verdict.holds, verdict.action) == (False, "warn-or-disable-external-tier")


def test_a_salt_may_find_what_it_left_itself():
    verdict = judge_isolation([A_COLD, B_COLD, B_WARM], [])
    assert (verdict.holds, verdict.action) == (True, "none")


def test_requests_without_a_salt_prove_nothing():
    assert judge_isolation([IsolationProbe("", 512)], ["Key(cache_salt='')"]).holds


@pytest.mark.parametrize(
    "line",
    [
        "ObjectKey(model='m', cache_salt='')",
        '{"cache_salt": "", "chunk": 1}',
        "key salt=None chunk=1",
        '{"salt":null}',
        "salt= chunk=1",
        "cache_salt=",
    ],
)
def test_a_key_without_a_salt_is_proof_where_salts_were_sent(line):
    assert judge_isolation([A_COLD], [line]).evidence == ("store-key-with-empty-salt",)


@pytest.mark.parametrize("line", ["ObjectKey(cache_salt='sa')", '{"salt": "nullify"}', "no word"])
def test_a_key_with_a_salt_is_none(line):
    assert judge_isolation([A_COLD], [line]).holds

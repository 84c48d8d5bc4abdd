import re

import pytest

from warmturn.blocks import validate_salt
from warmturn.errors import InvalidInput, InvalidRequest
from warmturn.session.tenant import Anonymous, IdentityRule, SaltKey, SaltRule, is_placeholder

KEY = SaltKey(b"0123456789abcdef")
BEARER = IdentityRule("Authorization", "Bearer")


def rule(anonymous: Anonymous = Anonymous.REFUSE, **options) -> SaltRule:
    return SaltRule(key=KEY, identity=BEARER, anonymous=anonymous, **options)


def salt(token: str, **options) -> str | None:
    return rule().salt_for({"authorization": f"Bearer {token}"}, **options)


@pytest.mark.parametrize(
    "value",
    [
        *("", "  ", "EMPTY", "none", "null", "sk-no-key", "sk-no-key-required", "fake-api-key"),
        *("dummy", "DUMMY_KEY", "not-needed", "not needed", "no-key-required", "xxxx", "sk-xxxx"),
        *("your-api-key", "api-key", "N/A", "<placeholder>", "****"),
    ],
)
def test_a_placeholder_is_no_identity(value):
    assert is_placeholder(value)
    assert BEARER.tenant_of({"authorization": f"Bearer {value}"}) is None


@pytest.mark.parametrize(
    "value", ["key-123", "sk-abc123", "t1", "default", "acme", "none-of-your-business", "x", "7"]
)
def test_a_real_identity_is_one(value):
    assert BEARER.tenant_of({"AUTHORIZATION": f"bearer  {value} "}) == value


def test_another_scheme_is_no_identity_and_none_is_needed_where_none_is_configured():
    assert BEARER.tenant_of({"authorization": "Basic abc"}) is None
    assert BEARER.tenant_of({"authorization": "bare-key"}) == "bare-key"
    assert BEARER.tenant_of({}) is None
    assert IdentityRule("x-tenant-id").tenant_of({"X-Tenant-Id": "a b"}) == "a b"


def test_a_salt_is_what_engines_accept_and_does_not_show_the_identity():
    found = salt("tenant-seven")
    assert re.fullmatch(r"[0-9a-f]{56}", found)
    assert validate_salt(found) == found
    assert "seven" not in found
    assert found.startswith(KEY.key_id)


def test_a_salt_depends_on_tenant_and_key_and_on_nothing_else():
    assert salt("a") == salt("a", user="u", session_id="s", once=b"1")
    assert salt("a") != salt("b")
    other = SaltRule(key=SaltKey(b"another key of 16"), identity=BEARER)
    assert other.salt_for({"authorization": "Bearer a"}) != salt("a")
    assert other.key.key_id != KEY.key_id


def test_users_of_one_tenant_are_kept_apart_on_request():
    per_user = rule(per_user=True)
    headers = {"authorization": "Bearer a"}
    salts = {per_user.salt_for(headers, user=user) for user in (None, "u", "v")}
    assert len(salts) == 3


def test_tenant_and_user_are_not_glued_together():
    assert KEY.salt("tenant", "ab", "c") != KEY.salt("tenant", "a", "bc")
    assert KEY.salt("tenant", "a") != KEY.salt("session", "a")


def test_anonymous_callers_are_refused_unless_the_operator_chooses():
    with pytest.raises(InvalidRequest, match="no identity") as refused:
        salt("EMPTY")
    assert (refused.value.param, refused.value.code) == ("Authorization", "identity_required")


def test_an_anonymous_session_has_a_salt_of_its_own():
    lenient = rule(Anonymous.SESSION)
    salts = [lenient.salt_for({}, session_id=s) for s in ("s", "s", "t")]
    assert salts[0] == salts[1] != salts[2]
    once = [lenient.salt_for({}, once=o) for o in (b"1", b"2")]
    assert len({*salts, *once}) == 4
    with pytest.raises(InvalidRequest):
        lenient.salt_for({})


def test_a_shared_salt_for_all_anonymous_callers_has_to_be_chosen():
    shared = rule(Anonymous.SHARED)
    assert shared.salt_for({}, session_id="s") == shared.salt_for({}, once=b"2")
    assert shared.salt_for({}) != salt("a")


def test_without_a_configured_identity_there_is_no_salt():
    assert SaltRule().salt_for({"authorization": "Bearer a"}) is None


def test_a_short_key_and_an_identity_without_a_key_are_refused():
    with pytest.raises(InvalidInput, match="15 bytes"):
        SaltKey(b"0" * 15)
    with pytest.raises(InvalidInput, match="no salt key"):
        SaltRule(identity=BEARER)


def test_a_long_key_counts_in_full_and_is_never_printed():
    long = b"a" * 64
    assert SaltKey(long + b"1").key_id != SaltKey(long + b"2").key_id
    assert "0123" not in repr(KEY)
    assert "0123" not in repr(rule())

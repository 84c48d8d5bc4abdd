import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmturn.blocks.keys import (
    AdapterKey,
    CacheScope,
    ImageKey,
    block_extras,
    event_keys_of,
    extra_keys_of,
    validate_salt,
)
from warmturn.errors import InvalidRequest

ADAPTER = AdapterKey("sql", "/adapters/sql")


def keys(scope, *, block_size=4, num_blocks=4):
    return [extra_keys_of(scope, i, block_size) for i in range(num_blocks)]


def test_a_plain_sequence_has_no_extra_keys():
    assert keys(CacheScope("m")) == [None, None, None, None]


def test_the_salt_is_in_block_0_only():
    assert keys(CacheScope("m", salt="s")) == [(("cache_salt", "s"),), None, None, None]


def test_the_adapter_is_in_every_block():
    assert keys(CacheScope("m", ADAPTER)) == [(("lora", "sql", "/adapters/sql"),)] * 4


def test_an_image_is_in_the_blocks_it_covers_at_its_offset_from_their_start():
    scope = CacheScope("m", images=(ImageKey("h", offset=3, length=6),))  # tokens 3 to 8
    assert keys(scope) == [(("mm", "h", 3),), (("mm", "h", -1),), (("mm", "h", -5),), None]


def test_an_image_that_ends_with_a_block_is_not_in_the_next():
    scope = CacheScope("m", images=(ImageKey("h", offset=4, length=4),))
    assert keys(scope) == [None, (("mm", "h", 0),), None, None]


def test_the_order_is_adapter_images_salt():
    scope = CacheScope("m", ADAPTER, "s", (ImageKey("h", 0, 2), ImageKey("g", 2, 1)))
    assert [key[0] for key in keys(scope)[0]] == ["lora", "mm", "mm", "cache_salt"]


def test_events_carry_the_keys_untagged_and_the_adapter_without_its_path():
    scope = CacheScope("m", ADAPTER, "s", (ImageKey("h", 1, 2),))
    assert event_keys_of(extra_keys_of(scope, 0, 4)) == ("sql", ("h", 1), "s")
    assert event_keys_of(None) is None


@st.composite
def scopes(draw):
    images, at = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=4)):
        images.append(ImageKey(f"h{len(images)}", at + gap, length))
        at = images[-1].end
    adapter = draw(st.sampled_from([None, ADAPTER]))
    return CacheScope("m", adapter, draw(st.sampled_from([None, "s"])), tuple(images))


@settings(deadline=None)
@given(scopes(), st.integers(0, 12), st.integers(0, 12), st.integers(1, 7))
def test_keys_of_a_run_of_blocks_are_those_of_each_block(scope, first, count, block_size):
    extras = block_extras(scope, first_block=first, num_blocks=count, block_size=block_size)
    assert [extras.special.get(i, extras.common) for i in range(count)] == [
        extra_keys_of(scope, first + i, block_size) for i in range(count)
    ]
    assert set(extras.special) <= set(range(count))


def test_an_empty_salt_is_refused_instead_of_meaning_none():
    with pytest.raises(InvalidRequest, match="empty") as caught:
        CacheScope("m", salt="")
    assert caught.value.param == "cache_salt"


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, 0), (3, -1)])
def test_an_image_must_stand_somewhere(offset, length):
    with pytest.raises(InvalidRequest, match=f"offset {offset} with length {length}"):
        ImageKey("h", offset, length)


def test_images_out_of_order_or_overlapping_are_refused():
    with pytest.raises(InvalidRequest, match="'g' starts at token 3, before token 4"):
        CacheScope("m", images=(ImageKey("h", 0, 4), ImageKey("g", 3, 1)))


@pytest.mark.parametrize("salt", ["a", "A" * 43 + "=", "0f" * 64, "büro-東京", "with space", "."])
def test_a_salt_of_printable_text_is_valid(salt):
    assert validate_salt(salt) == salt


@pytest.mark.parametrize(
    ("salt", "problem"),
    [
        ("", "has 0 characters"),
        ("x" * 129, "has 129 characters"),
        ("a@b", "has '@' at position 1"),
        ("a/b", "has '/' at position 1"),
        ("a\\b", "at position 1"),
        ("ab\0", "U\\+0000 at position 2"),
        ("a\nb", "U\\+000A"),
        ("\x7f", "U\\+007F"),
        ("\x85", "U\\+0085"),
        ("\ud800", "U\\+D800"),
        (7, "is a int"),
        (None, "is a NoneType"),
        (["a"], "is a list"),
        (b"a", "is a bytes"),
    ],
)
def test_other_salts_are_refused_with_the_field_and_the_reason(salt, problem):
    with pytest.raises(InvalidRequest, match=problem) as caught:
        validate_salt(salt)
    assert caught.value.param == "cache_salt"


def test_a_refused_salt_is_not_repeated_in_the_message():
    with pytest.raises(InvalidRequest) as caught:
        validate_salt("secret-of-tenant/7")
    assert "secret" not in str(caught.value)

from tests.cases.schema import read_schema, violations


def problems(value, shape, **options):
    return list(violations(value, shape, where="in", **options))


def test_every_kind_of_every_part_has_an_input_and_an_answer_shape():
    schema = read_schema()
    kinds = {kind for kinds in schema.kinds_of_part.values() for kind in kinds}
    assert len(schema.kinds_of_part) == 7
    assert len(kinds) == 31
    for kind in kinds:
        assert {(kind, "input.json"), (kind, "expected.json")} <= schema.shapes.keys()


def test_a_value_of_the_shape_has_no_violation():
    shape = {"id": "str", "ts?": "num", "rows": [{"*": "int?"}], "mode": "=a|b?"}
    assert problems({"id": "x", "rows": [{"k": None}, {}], "mode": None}, shape) == []
    assert problems({"id": "x", "rows": [], "mode": "b", "ts": 1}, shape) == []


def test_each_violation_says_where_and_what():
    shape = {"id": "str", "rows": [{"*": "int"}], "mode": "=a|b"}
    value = {"id": 3, "rows": [{"k": 1.5}], "mode": "c", "extra": 0}
    assert sorted(problems(value, shape)) == [
        "in.id: 3 is not 'str'",
        "in.mode: \"c\" is not '=a|b'",
        "in.rows[0].k: 1.5 is not 'int'",
        "in: the field 'extra' does not occur in this kind",
    ]


def test_a_field_that_must_be_there_is_missed():
    assert problems({}, {"id": "str", "ts?": "num"}) == ["in: the field 'id' is missing"]


def test_a_boolean_is_neither_an_integer_nor_a_number():
    assert problems(True, "int")
    assert problems(True, "num")


def test_null_stands_only_where_the_shape_or_the_answer_allows_it():
    assert problems(None, "int")
    assert problems(None, "int?") == []
    assert problems({"a": None}, {"a": ["int"]}, nulls=True) == []


def test_a_list_and_an_object_are_not_each_other():
    assert problems({}, ["int"]) == ["in: {} is not a list"]
    assert problems([], {"*": "int"}) == ["in: [] is not an object"]
    assert problems([], {"a": "int"}) == ["in: [] is not an object"]

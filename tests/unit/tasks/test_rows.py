"""Fields of a row: each error names where, the field, what was got and what was expected."""

from __future__ import annotations

import pytest

from openconductor.errors import TaskError
from openconductor.tasks.rows import Row


def row(**values: object) -> Row:
    return Row(values, "data, line 7")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: row(a=1).text("b"), "data, line 7: field 'b': missing; got the fields a, expected a text"),
        (lambda: row().text("b"), "field 'b': missing; got the fields none"),
        (lambda: row(a=5).text("a"), "data, line 7: field 'a': got 5, expected a text"),
        (lambda: row(a="  ").text("a"), "field 'a': got '  ', expected a text that is not blank"),
        (lambda: row(a=None).text("a"), "field 'a': got None, expected a text"),
        (lambda: row(a=True).text_or_number("a"), "field 'a': got True, expected a text"),
        (lambda: row(a="1").amount("a"), "field 'a': got '1', expected a number"),
        (lambda: row(a="ab").texts("a"), "field 'a': got 'ab', expected a list of texts"),
        (lambda: row(a=["a", 1]).texts("a"), "field 'a': got 1, expected nothing but texts in the list"),
        (lambda: row(a=[]).objects("a"), "expected a list of objects, of at least one"),
        (lambda: row(a={}).objects("a"), "field 'a': got {}, expected a list of objects"),
        (lambda: row(a=[{}, 1]).objects("a"), "field 'a': got 1, expected nothing but objects in the list"),
        (lambda: row(a=1.5).identity("a"), "field 'a': got 1.5, expected a text"),
        (lambda: row(a="").identity("a"), "expected a text that is not blank"),
    ],
)
def test_a_wrong_field_is_an_error_that_says_everything(read, message: str) -> None:
    with pytest.raises(TaskError) as caught:
        read()
    assert message in str(caught.value)


def test_fields_of_the_right_type_are_read_as_they_are() -> None:
    one = row(text=" a ", blank="", number=3, half=0.5, texts=("a", ""), objects=[{"x": 1}], null=None)
    assert one.text("text") == " a "
    assert one.text("blank", blank=True) == ""
    assert (one.text_or_number("number"), one.text_or_number("half")) == ("3", "0.5")
    assert (one.amount("half"), one.amount("null")) == (0.5, None)
    assert (one.texts("texts"), one.objects("objects")) == (("a", ""), [{"x": 1}])
    assert (one.identity("number"), one.identity("text")) == (3, " a ")
    assert (one.text_or("null", "d"), one.text_or("none", "d"), one.text_or("blank", "d")) == ("d", "d", "")
    assert one.has("text", "blank")
    assert not one.has("text", "null")


def test_a_long_value_is_cut_in_its_error() -> None:
    with pytest.raises(TaskError) as caught:
        row(a=["x" * 9999]).text("a")
    assert len(str(caught.value)) < 200

import pytest

from tests.docs.fences import fences_of

PAGE = """\
# A page

```console
$ echo one
```

<!-- not run: needs a GPU -->
```bash
nvidia-smi
```

<!-- slow: loads a model -->

```python
print(1)
```

- in a list

    ```text title="out"
    a
      b
    ```
"""


def page_with(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_blocks_are_found_with_language_line_and_marks(tmp_path):
    found = fences_of(page_with(tmp_path, PAGE))
    assert [(f.language, f.line, f.not_run, f.is_slow) for f in found] == [
        ("console", 3, None, False),
        ("bash", 8, "needs a GPU", False),
        ("python", 14, None, True),
        ("text", 20, None, False),
    ]
    assert found[0].body == "$ echo one\n"


def test_the_indent_of_a_list_is_taken_off(tmp_path):
    assert fences_of(page_with(tmp_path, PAGE))[3].body == "a\n  b\n"


@pytest.mark.parametrize("mark", ["not run", "not run:", "not run: ", "slow:"])
def test_a_mark_without_a_reason_is_refused(tmp_path, mark):
    page = page_with(tmp_path, f"<!-- {mark}-->\n```bash\nx\n```\n")
    with pytest.raises(ValueError, match=r"page.md:2: '.*' needs a reason"):
        fences_of(page)

"""What stands above a block is told for each block, so that no example goes unchecked."""

from __future__ import annotations

from pathlib import Path

from .documents import blocks

GUIDE = """\
# Guide

```python
print(1)
```

<!-- prints -->
```text
1
```

<!-- not run: it needs
a server -->
```python
print(2)
```

<!-- prints -->

```text
2
```

<!-- A remark. -->

```python
print(3)
```

Text in between <!-- prints --> parts them.

```text
3
```
"""


def test_each_block_has_the_comment_above_it_and_no_other(tmp_path: Path) -> None:
    guide = tmp_path / "guide.md"
    guide.write_text(GUIDE, encoding="utf-8")
    found = blocks(guide)
    assert [block.note for block in found] == [
        "",
        "prints",
        "not run: it needs\na server",
        "prints",
        "A remark.",
        "",
    ]
    assert [block.is_run for block in found] == [True, True, False, True, True, True]

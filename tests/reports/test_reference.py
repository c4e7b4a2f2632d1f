"""The generated pages say what the code says."""

from __future__ import annotations

import pytest

from reports.metric_table import METRICS
from reports.reference import DOCS, metrics_markdown, schema_markdown


@pytest.mark.parametrize(("name", "made"), [("schema.md", schema_markdown), ("metrics.md", metrics_markdown)])
def test_generated_pages_are_up_to_date(name: str, made: object) -> None:
    assert (DOCS / name).read_text() == made(), "run: python -m reports.reference"  # type: ignore[operator]


def test_every_metric_has_its_formula_as_code() -> None:
    page = metrics_markdown()
    for name in METRICS:
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert "\n    " in section, name

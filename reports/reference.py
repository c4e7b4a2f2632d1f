"""Reference pages made of the code: `python -m reports.reference` writes schema.md and metrics.md of docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from reports.metric import QUANTILES, TAIL_SIZE, AnyMetric, PerRep, PerRequest, PerToken, Share
from reports.metric_table import METRICS, formula, metric
from reports.runinfo import RunInfo
from reports.schema import SCHEMA_VERSION, TABLES

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"

_SCHEMA_HEAD: Final = """# What a run records

Generated from `reports/schema.py` by `python -m reports.reference`. Schema version VERSION.

A run is a folder: `run.json` (what it was) and one Parquet dataset for each table,

    RUN/<table>/cell=<cell>/rep=<n>/<shard>.parquet

with one shard for each process that wrote. Any tool reads them without this one:

    duckdb -c "select cell, quantile_disc((first_token_ns - sent_ns) / 1e6, 0.99) as ttft_p99_ms
               from 'RUN/requests/**/*.parquet' where phase = 'measure' and status = 'ok' group by cell"
    pandas.read_parquet("RUN/requests")          polars.scan_parquet("RUN/requests/**/*.parquet")

- Rows of different tables join on `request_id`; every process writes only what it alone observed.
- `*_ns` instants are nanoseconds since the UNIX epoch by the writing process's monotonic clock and anchor;
  the anchor and its error stand in the file's metadata. A simulated run counts from 0.
- Null means "not reported" or "did not happen", never zero.
- Unit and meaning of a column are in its field metadata (`unit`, `doc`), the version in the schema's
  (`pddbench_schema`).

**While it is written** a shard is an Arrow stream, `_<shard>.arrows`, flushed every second or 2,000 rows.
After kill -9 every flushed row is still read by `pddbench report` (which calls the run partial), and
`pddbench report RUN --recover` turns such shards into Parquet. A stream beside its Parquet file is a
left-over and never read, so no row counts twice. A full disk ends recording with one error; what was
flushed stays.

**Versions.** Adding a nullable column keeps the version: readers take null for a column that a file
lacks. Anything else raises it, and comes with a reader of the old one. A file of a newer version is refused
by name.
"""

_METRICS_HEAD: Final = f"""# Metrics

Generated from `reports/metrics/` by `python -m reports.reference`. Metrics are derived from the recorded
facts of [schema.md](schema.md) when a report is made; none is stored.

- Figures are called `<metric>_<statistic>` (`ttft_p99`, `itl_mean`), shares and rates by their metric alone
  (`request_goodput`). The same names serve in `--fail-if`, JSON and CSV.
- Statistics of distributions: mean, {", ".join(QUANTILES)}. Percentiles are exact and nearest-rank over
  the raw records of phase `measure`: the smallest value that at least the share q does not exceed.
- A percentile with fewer than {TAIL_SIZE} requests beyond it is marked `*`: it is little more than the
  maximum.
- Latencies are of successful requests. `ttft`, `ttft_intended` and `e2e_latency` exist as
  `<metric>_<statistic>_with_failures` too when any request failed: failures count as +inf.
- A metric is null, never 0, when the records do not hold what it needs.

How intervals and significance are made: [reports.md](reports.md).
"""


def schema_markdown() -> str:
    parts = [_SCHEMA_HEAD.replace("VERSION", str(SCHEMA_VERSION))]
    for table in TABLES.values():
        parts.append(f"## {table.name}\n\nOne row: {table.row}. Written by: {table.writer}.\n")
        parts.append("| column | type | unit | null | meaning |\n|---|---|---|---|---|")
        parts += [
            f"| `{c.name}` | {c.type} | {c.unit} | {'yes' if c.nullable else 'no'} | {_cell(c.doc)} |"
            for c in table.columns
        ]
        parts.append("")
    parts.append("## run.json\n")
    parts.append(_run_json())
    return "\n".join(parts) + "\n"


def metrics_markdown() -> str:
    parts = [_METRICS_HEAD, "| metric | what | unit | better | over |", "|---|---|---|---|---|"]
    for name in METRICS:
        known = metric(name)
        link = f"[`{name}`](#{name})"
        parts.append(f"| {link} | {known.title} | {_unit(known)} | {known.better.value} | {_over(known)} |")
    for name in METRICS:
        known = metric(name)
        needs = ", ".join(f"`{need}`" for need in known.needs)
        parts.append(f"\n## {name}\n\n{_prose(formula(name))}\n\nNeeds {needs}.")
    return "\n".join(parts) + "\n"


def write(folder: Path) -> list[Path]:
    """Write both pages."""
    pages = {"schema.md": schema_markdown(), "metrics.md": metrics_markdown()}
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


def _run_json() -> str:
    """The structure as JSON Schema: what `RunInfo` decodes."""
    schema = msgspec.json.schema(RunInfo)
    text = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
    head = "Written at the start (`state` is `running`) and at the end, at once or not at all."
    return f"{head}\n\n```json\n{text}\n```"


def _prose(text: str) -> str:
    """A docstring with its formulas as code."""
    blocks = re.split(r"\n\s*\n", text)
    shown = []
    for block in blocks:
        if re.match(r"\s*[a-z_0-9]+(\[i\])? =|\s*see ", block):
            lines = "\n".join("    " + line.strip() for line in block.splitlines())
            shown.append(lines)
        else:
            shown.append(" ".join(line.strip() for line in block.splitlines()))
    return "\n\n".join(shown)


def _unit(known: AnyMetric) -> str:
    return "share" if known.unit == "1" else known.unit


def _over(known: AnyMetric) -> str:
    match known:
        case PerRequest():
            return "requests"
        case PerToken():
            return "tokens"
        case Share():
            return "sum over sum"
        case PerRep():
            return "repetitions"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for path in write(DOCS):
        print(path)  # noqa: T201

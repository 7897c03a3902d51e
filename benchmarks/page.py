"""Write docs/benchmarks.md from the recorded rows, so that no figure in it is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.pictures import DRAWN, draw
from benchmarks.recording import RESULTS, table

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
ORDER = (
    *(f"diva_{name}" for name in ("digits", "mnist", "mnist60k", "fashion", "har", "reuters", "dec", "paper")),
    "diva_ablation",
    "diva_threads",
    "incremental",
    "novelty",
    "traceability",
    "births_and_merges",
    "shuffle",
    "assignment",
    "small_batches",
    "training_literal",
    "training_overhead",
    "report",
    "stream_kills",
    "stream_long",
    "recovery",
    *(f"mixture_{name}" for name in ("noise", "grid", "embeddings", "codes", "restarts", "ablation")),
    "lap",
    "fit",
    "memory",
    "scale_n",
    "scale_k",
)


TOO_LONG = ("births_and_merges",)  # for a table: only drawn


def main() -> None:
    lines = ["# Benchmarks", "", "Every table is written by `make bench` (one of them: `python -m benchmarks NAME`)."]
    for name in ORDER:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        document = json.loads(path.read_text())
        facts = ("date", "commit", "processor", "instructions", "python", "torch", "scikit-learn")
        known = ", ".join(f"{k} {document[k]}" for k in facts if k in document)
        lines += ["", f"## {document['title']}", "", f"{known}.", ""]
        if name in DRAWN:
            lines += [f"![{document['title']}](images/{draw(name, document['rows']).name})", ""]
        if name not in TOO_LONG:
            lines += table(document["rows"])
        lines += [line for note in document["notes"] for line in ("", note)]
    PAGE.write_text("\n".join(lines) + "\n")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()

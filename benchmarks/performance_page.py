"""Write docs/performance.md from the recorded rows; what was not measured yet is left out."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.recording import RESULTS, table

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
HEAD = """# Performance

What diva costs beside what cannot be done without, and how cost grows. Every table is written by `python -m benchmarks NAME`,
then `python -m benchmarks performance_page`; run one alone on a quiet machine.

| what | how it is kept near the hardware |
|---|---|
| a lap of the mixture | two matrix products and a softmax, in pieces that stay in cache; a thread for each part of a batch |
| several processes | a part each, one message a batch; sums in one order: the same bits ([how](several-machines.md)) |
| `predict` | one product; no softmax where only the best component is asked for |
| data larger than memory | read through a map, a piece at a time; pages are given back |
| training | the network's own forward and backward; augmentation for a whole batch at once |
| training on a GPU | if asked for: `compile=True`, and `precision="bfloat16"`, in half as many bits |

Threads are set once, by whoever starts a fit: `OMP_NUM_THREADS`. Results of the mixture do not depend on their number.
"""
ORDER = ("hardware", "latency", "ranks", "ranks_mnist", "memmap", "costs_lap", "costs_epoch")


def main() -> None:
    lines = [HEAD]
    for name in ORDER:
        if not (path := RESULTS / f"{name}.json").exists():
            continue
        document = json.loads(path.read_text())
        facts = ", ".join(f"{k} {document[k]}" for k in ("date", "commit", "processor", "instructions", "torch"))
        lines += [f"## {document['title']}", "", f"`python -m benchmarks {name}`: {facts}.", "", *table(document["rows"]), ""]
        lines += [line for note in document["notes"] for line in (note, "")]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()

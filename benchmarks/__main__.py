"""Run benchmarks by name, or all: ``python -m benchmarks [recovery|speed|scale|memory|page] ...``."""

from __future__ import annotations

import argparse

from benchmarks import bench_recovery, bench_scale, bench_speed, page

BENCHMARKS = {
    "recovery": bench_recovery.main,
    "speed": bench_speed.main,
    "scale": bench_scale.main,
    "memory": bench_scale.memory,
    "page": page.main,
}

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("names", nargs="*", default=list(BENCHMARKS), help="which to run; all by default")
names = parser.parse_args().names
if unknown := set(names) - set(BENCHMARKS):
    parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; choose from {', '.join(BENCHMARKS)}")
for name in names:
    BENCHMARKS[name]()

"""Run benchmarks by name, or all: ``python -m benchmarks [NAME ...]``."""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks import (
    bench_calibration,
    bench_costs,
    bench_distributed,
    bench_diva,
    bench_incremental,
    bench_jobs,
    bench_mixture,
    bench_recovery,
    bench_report,
    bench_scale,
    bench_speed,
    bench_stream,
    bench_training,
    bench_zoo,
    headline,
    page,
    performance_page,
    zoo_page,
)

BENCHMARKS = {
    "recovery": bench_recovery.main,
    "speed": bench_speed.main,
    "scale": bench_scale.main,
    "memory": bench_scale.memory,
    **{name: partial(bench_diva.run, name) for name in bench_diva.CASES},
    "alternatives": bench_diva.alternatives,
    "ablation": bench_diva.ablation,
    "threads": bench_diva.threads,
    "diva_noise": bench_diva.noise,
    **bench_training.BENCHMARKS,
    **bench_incremental.BENCHMARKS,
    "report": bench_report.main,
    "calibration": bench_calibration.main,
    **bench_mixture.BENCHMARKS,
    "stream_kills": bench_stream.kills,
    "stream_long": bench_stream.long,
    **bench_distributed.BENCHMARKS,
    **bench_costs.BENCHMARKS,
    "page": page.main,
    "performance_page": performance_page.main,
    **bench_zoo.BENCHMARKS,
    "zoo_page": zoo_page.main,
    "jobs": bench_jobs.main,
    "headline": headline.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    listed = f"which to run, all by default: {', '.join(BENCHMARKS)}"
    parser.add_argument("names", nargs="*", default=list(BENCHMARKS), help=listed)
    bench_zoo.add_options(parser)
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; choose from {', '.join(BENCHMARKS)}")
    for name in options.names:
        if name in bench_zoo.BENCHMARKS:
            bench_zoo.BENCHMARKS[name](bench_zoo.choice_of(options))
        else:
            BENCHMARKS[name]()


if __name__ == "__main__":
    main()

"""Memory depends on the batch, on K and on D, not on how much data there is."""

import pytest

bench_scale = pytest.importorskip("benchmarks.bench_scale", reason="run from the repository's folder")


@pytest.mark.slow
def test_a_mapped_file_does_not_end_up_in_memory():
    outcome = bench_scale.memmap_fit(n_samples=2_000_000)  # 128 MB
    assert outcome["K found"] == 20
    assert outcome["peak above that, MB"] < 128 + 200  # the system may keep pages of the file, which count as well


@pytest.mark.slow
def test_ten_million_rows_stay_below_600_megabytes():
    outcome = bench_scale.memmap_fit(n_samples=10_000_000)  # 640 MB
    assert outcome["K found"] == 20
    assert outcome["peak above that, MB"] < 600

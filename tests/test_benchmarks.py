"""Benchmarks are run by hand, now and then: that they still run is seen to here, on next to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import bench_predictor


def test_the_predictors_benchmark_measures_variants_beside_the_plain_one(tmp_path: Path) -> None:
    small = ["--batch", "1", "--agents", "2", "--neighbours", "1", "--warmup", "0", "--runs", "1"]
    log = tmp_path / "log.json"
    assert bench_predictor.main([*small, "--variants", "factorized carried", "--json", str(log)]) == 0
    rows = json.loads(log.read_text())["rows"]
    assert [row["variant"] for row in rows] == ["monolithic", "factorized carried"]
    assert all(row["median_ms"] > 0 for row in rows)

"""Backbones must import where only torch and numpy are: benchmarks run on bare GPU machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import factorjepa

SOURCE = Path(factorjepa.__file__).parents[1]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_backbone.py"

PREFACE = """
import sys
for name in ("pydantic", "av", "cv2", "safetensors", "typer", "rich", "PIL", "yaml", "transformers"):
    sys.modules[name] = None  # importing it now raises ImportError
"""


def python(*words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_backbones_and_masks_import_with_torch_and_numpy_alone() -> None:
    code = (
        PREFACE + "import factorjepa.backbones, factorjepa.backbones.masks, factorjepa.backbones.momentum; print('ok')"
    )
    assert python("-c", code).strip() == "ok"


def test_the_benchmark_prints_a_line_of_json() -> None:
    words = ["--arch", "nano", "--runs", "2", "--warmup", "0", "--context-frames", "4", "--device", "cpu", "--parts"]
    start = f"import runpy; sys.path.insert(0, {str(BENCHMARK.parent)!r}); sys.argv[1:] = {words!r}; "
    code = PREFACE + start + f"runpy.run_path({str(BENCHMARK)!r}, run_name='__main__')"
    line = json.loads(python("-c", code).splitlines()[-1])
    row = line["rows"][0]
    assert row["way"] == "eager"
    assert 0 < row["both"]["median_ms"] <= row["both"]["p95_ms"]
    assert {"encoder", "predictor"} <= row.keys()

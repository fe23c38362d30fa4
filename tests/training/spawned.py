"""One of several connected processes: `spawned.py FOLDER JOB...` trains each `FOLDER/JOB.yaml` into `FOLDER/JOB`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from factorjepa.config import resolve
from factorjepa.training.engine import Engine
from factorjepa.training.parallel import Processes
from factorjepa.training.settings import TrainSettings


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    with Processes.started("cpu") as processes:
        for job in sys.argv[2:]:
            settings = resolve(TrainSettings, folder / f"{job}.yaml")
            resume = (folder / job / "checkpoints").exists()
            Engine(settings, processes.device, processes).run(folder / job, resume)


if __name__ == "__main__":
    main()

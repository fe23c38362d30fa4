"""How long one prediction takes at batch 1: the model alone, and from a file on disk to the predicted tokens.

Panel E: resident tensors for the model alone; end to end also decodes, resizes, normalises and copies to the device.
Object states are at hand in both: they are read from packets, which the teacher has made before.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..seeding import stream
from ..teacher.states import object_states
from ..training.settings import TrainSettings
from ..training.update import precision
from ..transfer import sent
from .flops import nominal_peak
from .subject import Subject
from .synthetic import Scenery, evidence
from .timing import Times, forget_peak, peak_gib, timed

Launched = Literal["eager", "compiled"]
Way = Launched | Literal["graph"]  # graph: what `compiled` (or eager, on its own) launches, replayed
SOURCE = (720, 1280, 24.0)  # height, width and rate of the file that is decoded


@dataclass(frozen=True)
class Latency:
    """Of one way of running."""

    model: Times
    peak: float | None  # GiB
    flops: float
    mfu: float | None

    def as_json(self) -> dict[str, Any]:
        return {
            "median_ms": 1e3 * self.model.median, "p95_ms": 1e3 * self.model.p95, "runs": len(self.model.seconds),
            "peak_gib": self.peak, "tflop": self.flops / 1e12, "mfu": self.mfu,
        }  # fmt: skip


def model_latency(subject: Subject, scenery: Scenery, way: Way, warmup: int, runs: int) -> Latency:
    """Encoder on the context frames and the predictor for every future token, from tensors on the device."""
    device = subject.device
    with torch.no_grad(), _stance(subject, way):
        forget_peak(device)
        predict = _prediction(subject, scenery)
        video = _video(subject.settings, device)
        run: Callable[[], object] = _graph(lambda: predict(video)) if way == "graph" else lambda: predict(video)
        times = timed(run, device, warmup, runs)
    flops = subject.prediction_flops(subject.settings, scenery).total
    most = nominal_peak(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return Latency(times, peak_gib(device), flops, None if most is None else flops / times.median / most)


def end_to_end_latency(subject: Subject, scenery: Scenery, way: Launched, warmup: int, runs: int) -> dict[str, Any]:
    """From an H.264 file to predicted tokens; decoding and preprocessing are timed on their own as well."""
    from ..pixels import resize_to_cover, to_video
    from ..video import read_frames, write_video

    settings, device = subject.settings, subject.device
    height, width, rate = SOURCE
    times = np.arange(settings.context) / settings.fps
    with torch.no_grad(), _stance(subject, way), tempfile.TemporaryDirectory(prefix="clip-") as folder:
        path = Path(folder) / "clip.mp4"
        count = int(settings.frames / settings.fps * rate) + 1
        write_video(path, _pictures(height, width, count), rate)
        predict = _prediction(subject, scenery)

        def run() -> None:
            pictures = resize_to_cover(read_frames(path, times), settings.size, settings.size)
            predict(to_video(sent(torch.from_numpy(pictures)[None], device)))

        whole = timed(run, device, warmup, runs)
        frames, side, cpu = read_frames(path, times), settings.size, torch.device("cpu")
        decoding = timed(lambda: read_frames(path, times), cpu, 1, min(runs, 20))
        preparing = timed(lambda: resize_to_cover(frames, side, side), cpu, 1, min(runs, 20))
    return {
        "median_ms": 1e3 * whole.median, "p95_ms": 1e3 * whole.p95, "runs": runs, "decode_ms": 1e3 * decoding.median,
        "preprocess_ms": 1e3 * preparing.median, "source": f"{width}x{height} at {rate:g} fps, H.264",
    }  # fmt: skip


@contextlib.contextmanager
def _stance(subject: Subject, way: Way) -> Iterator[None]:
    subject.learner.eval()
    with contextlib.ExitStack() as stack:
        if subject.compiled and way == "eager":
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _prediction(subject: Subject, scenery: Scenery) -> Callable[[Tensor], Tensor]:
    settings, learner, device = subject.settings, subject.learner, subject.device
    states = None
    if learner.method.reads_states:
        cells = evidence(1, subject.grid(settings)[1], settings.context, scenery, stream("profile latency"))
        states = object_states(cells).to(device)
    future = settings.frames - settings.context

    def predict(video: Tensor) -> Tensor:
        if video.shape[2] == settings.context:  # the clip's length says how many frames are predicted
            video = torch.nn.functional.pad(video, (0, 0, 0, 0, 0, future))
        with precision(settings, device):
            return learner.predict(video, None, states).tokens_BtD

    return predict


def _video(settings: TrainSettings, device: torch.device) -> Tensor:
    return torch.randn(1, 3, settings.frames, settings.size, settings.size, device=device)


def _graph(call: Callable[[], Tensor]) -> Callable[[], None]:
    """A CUDA graph of `call`, whose tensors stay where they are."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay(kept: Tensor = kept) -> None:
        graph.replay()

    return replay


def _pictures(height: int, width: int, count: int) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """A textured plane that moves sideways: compresses like footage from a moving camera, not like noise."""
    random = stream("profile pictures")
    coarse = random.integers(0, 255, (height // 16, width // 8, 3))
    plane = np.kron(coarse, np.ones((16, 16, 1), np.int64)).astype(np.uint8)
    for frame in range(count):
        left = 4 * frame % width
        yield np.ascontiguousarray(plane[:height, left : left + width])

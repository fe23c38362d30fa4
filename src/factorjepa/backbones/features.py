"""Patch features of a video, and a picture of them: the first three principal components as red, green and blue.

Shapes: S tubelets of the whole video, R rows, C columns, D width.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import BackboneError, VideoError
from ..storage import atomic_path
from ..video import Frames, probe, read_frames, write_video
from .backbone import Backbone
from .preprocess import Resize, normalise, resize_frames
from .spec import BackboneSpec

_LARGEST = 8 * 2**30  # bytes of features held in memory
_FITTED = 65_536  # tokens that the principal components are fitted on
_COLUMNS = 8  # moments in the picture


@dataclass(frozen=True)
class VideoFeatures:
    """Last-level tokens of every tubelet of a video; windows are encoded apart, so time mixes only inside one."""

    tokens: NDArray[np.float16]  # [S, R, C, D]
    seconds: NDArray[np.float64]  # [S] when each tubelet starts
    window: NDArray[np.int64]  # [S] which window it was encoded in
    frames: Frames  # [S * tubelet, H, W, 3] what the encoder saw
    about: dict[str, str]


def video_features(
    video: Path,
    backbone: Backbone,
    *,
    fps: float = 4.0,
    start: float = 0.0,
    seconds: float | None = None,
    resize: Resize = "protocol",
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> VideoFeatures:
    """Sample `video` at `fps`, encode it in windows of the spec's clip length (the last may be shorter)."""
    spec = backbone.spec
    times = sample_times(video, spec, fps, start, seconds)
    encoder = backbone.encoder.to(device).eval()
    tokens, shown, window = [], [], []
    for number, first in enumerate(range(0, len(times), spec.frames)):
        frames = resize_frames(read_frames(video, times[first : first + spec.frames]), *spec.pixels, resize)
        with torch.inference_mode():
            clip = normalise(frames).unsqueeze(0).to(device, next(encoder.parameters()).dtype)
            encoded = encoder(clip)[0].view(-1, *spec.grid, spec.dim)
        tokens.append(encoded.to("cpu", torch.float16).numpy())
        shown.append(frames)
        window += [number] * len(encoded)
        if progress is not None:
            progress(min(first + spec.frames, len(times)), len(times))
    about = {"video": video.name, "weights": backbone.origin, "spec": spec.to_json(), "fps": str(fps), "resize": resize}
    return VideoFeatures(np.concatenate(tokens), times[:: spec.tubelet], np.array(window), np.concatenate(shown), about)


def sample_times(
    video: Path, spec: BackboneSpec, fps: float = 4.0, start: float = 0.0, seconds: float | None = None
) -> NDArray[np.float64]:
    """Sampling moments inside the video, a whole number of tubelets; an error where there are none, or too many."""
    length = math.inf if seconds is None else seconds
    if not (0 < fps < math.inf and 0 <= start < math.inf and length > 0):
        raise BackboneError(f"fps and seconds must be positive and start not negative, got {fps}, {seconds}, {start}")
    info = probe(video)
    if start >= info.seconds:
        raise VideoError(
            f"{video}: is {info.seconds:.2f} s long and ends before --start {start:g}; choose a smaller one"
        )
    end = min(info.seconds, start + length)
    last = end - 0.5 / info.fps  # the middle of the last frame: durations are often stated a little long
    tubelets = max(0, math.floor((last - start) * fps) + 1) // spec.tubelet
    if not tubelets:
        cures = [f"raise --fps above {(spec.tubelet - 1) / max(last - start, 0.5 / info.fps):.3g}"]
        cures.append("raise --seconds" if end < info.seconds else "lower --start")
        raise VideoError(
            f"{video}: from {start:g} s to {end:.2f} s there are no {spec.tubelet} frames at {fps:g} fps, the least "
            f"that can be encoded; {' or '.join(cures)}"
        )
    if (size := tubelets * spec.grid[0] * spec.grid[1] * spec.dim * 2) > _LARGEST:
        raise BackboneError(
            f"{video}: {tubelets} tubelets would give {size / 2**30:.1f} GiB of features; choose a part with --start "
            "and --seconds, or a lower --fps"
        )
    times: NDArray[np.float64] = start + np.arange(tubelets * spec.tubelet) / fps
    return times


def write_features(features: VideoFeatures, path: Path) -> None:
    """`.safetensors` or `.npz` with `features [S, R, C, D]` fp16, `seconds [S]` and `window [S]`."""
    arrays: dict[str, NDArray[Any]] = {
        "features": features.tokens,
        "seconds": features.seconds,
        "window": features.window,
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}  # safetensors ignores strides
    if path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        with atomic_path(path) as temporary:
            save_file(arrays, temporary, metadata=features.about)
    elif path.suffix == ".npz":
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, about=np.array(json.dumps(features.about)), **arrays)
    else:
        raise BackboneError(f"{path}: features are written as .safetensors or .npz, not {path.suffix or 'no suffix'!r}")


def principal_colours(tokens: NDArray[np.float16]) -> Frames:
    """`[S, R, C, D]` to `[S, R, C, 3]` bytes: three principal components, each stretched over its middle 98 %."""
    flat = torch.from_numpy(tokens.reshape(-1, tokens.shape[-1])).float()
    step = -(-len(flat) // _FITTED)
    projected = (flat - flat[::step].mean(0)) @ _components(flat[::step])
    low, high = projected[::step].quantile(torch.tensor([0.01, 0.99]), dim=0)
    stretched = ((projected - low) / (high - low).clamp_min(1e-6)).clamp(0, 1) * 255
    colours: Frames = stretched.round().to(torch.uint8).numpy().reshape(*tokens.shape[:-1], 3)
    return colours


def write_pictures(features: VideoFeatures, colours: Frames, picture: Path, film: Path, fps: float) -> None:
    """A PNG of a few moments (frame above, components below) and an mp4 of all (frame left, components right)."""
    from PIL import Image

    tubelet = len(features.frames) // len(colours)
    height, width = features.frames.shape[1:3]

    def large(small: Frames) -> Frames:
        return small.repeat(height // small.shape[0], axis=0).repeat(width // small.shape[1], axis=1)

    chosen = np.unique(np.linspace(0, len(colours) - 1, _COLUMNS).round().astype(int))
    columns = [np.concatenate((features.frames[moment * tubelet], large(colours[moment]))) for moment in chosen]
    with atomic_path(picture) as temporary:
        Image.fromarray(np.concatenate(columns, axis=1)).save(temporary, format="PNG")
    pairs = (
        np.concatenate((frame, large(colours[number // tubelet])), axis=1)
        for number, frame in enumerate(features.frames)
    )
    write_video(film, pairs, fps)


def _components(tokens: Tensor) -> Tensor:
    """The three leading directions `[D, 3]`, signs fixed so that a re-run gives the same colours."""
    centred = tokens - tokens.mean(0)
    vectors: Tensor
    _, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))  # ascending
    leading = vectors[:, -3:].flip(1)
    strongest = leading.gather(0, leading.abs().argmax(0, keepdim=True))
    return leading * strongest.sign()

"""Opening an ONNX file with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from ..errors import DetectorError

Device = Literal["cpu", "cuda"]
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_SMALLEST_INPUT = 64  # px: an exporter's dummy picture is smaller, and no detector sees anything in it


def open_session(path: Path, device: Device = "cpu") -> Any:
    """An onnxruntime session that takes pictures; on a CPU with one thread, on `cuda` there and nowhere else."""
    try:
        import onnxruntime
    except ImportError:
        raise DetectorError(
            f"{path}: an ONNX file is run with onnxruntime; install it with pip install 'factorjepa[detectors]'"
        ) from None
    if not path.is_file():
        raise DetectorError(f"{path}: no such file; give the path of an ONNX detector")
    if device == "cuda" and _CUDA not in onnxruntime.get_available_providers():
        raise DetectorError(
            f"{path}: the onnxruntime installed here has no CUDA; pip install onnxruntime-gpu in its place, or take "
            "the device cpu"
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # the same sums in the same order, and other cores are busy with other frames
    options.use_deterministic_compute = device == "cuda"

    def opened(model: str | bytes) -> Any:
        try:
            return onnxruntime.InferenceSession(model, options, providers=[_CUDA, _CPU] if device == "cuda" else [_CPU])
        except Exception as error:  # onnxruntime raises its own kinds, which are not all exported
            reason = str(error).splitlines()[0]
            raise DetectorError(f"{path}: onnxruntime cannot open it ({reason}); an ONNX detector is wanted") from None

    session = opened(str(path))
    if device == "cuda" and _CUDA not in session.get_providers():  # it only warns, and takes the CPU
        raise DetectorError(
            f"{path}: onnxruntime has CUDA but cannot start it (driver, CUDA and cuDNN must be those it is built for); "
            "take the device cpu"
        )
    sizes = [size for given in session.get_inputs() for size in given.shape[2:]]
    if any(isinstance(size, int) and size < _SMALLEST_INPUT for size in sizes):
        return opened(_any_size(path))
    return session


def _any_size(path: Path) -> bytes:
    """The model without the batch and picture sizes that its file states.

    CenterFace was exported with ten pictures of 32 x 32 and takes any; onnxruntime believes the file.
    """
    try:
        import onnx
    except ImportError:
        raise DetectorError(
            f"{path}: states a picture size that it does not need; to lift it, pip install 'factorjepa[privacy]' (onnx)"
        ) from None
    model = onnx.load(str(path))
    weights = {one.name for one in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        sizes = value.type.tensor_type.shape.dim
        if value.name not in weights and len(sizes) == 4:
            for axis in (0, 2, 3):
                sizes[axis].Clear()
    return bytes(model.SerializeToString())

"""What is known of detectors' weights, what they find and their licences: by the file's hash, never by its name."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "licence unknown: check before use"


@dataclass(frozen=True)
class Model:
    name: str
    finds: str  # face, plate, or something else
    licence: str
    source: str


KNOWN = {
    "a3562ef62592bf387f6ef19151282ac127518e51c77696e62e0661bee95ba1ad": Model(
        "SCRFD-500M", "face", "InsightFace's models: non-commercial research only", "github.com/deepinsight/insightface"
    ),
    "25a606a145a5b6d7271ae138fbd00eba91dad8b83222ae3f2c7ecd0f4a7b0e31": Model(
        "YuNet-n 640", "face", "Apache-2.0", "github.com/ShiqiYu/libfacedetection.train"
    ),
    "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc": Model(
        "CenterFace", "face", "MIT", "github.com/Star-Clouds/CenterFace"
    ),
    "1bb07d364ba3b1cca8c27176d3ea6b5997b6264dea8c9304e092c618b112d5f0": Model(
        "CLP plate detector (trained on Chinese plates)", "plate", "Apache-2.0", "not stated in the file"
    ),
    "695e750a5d5754bb5a8d5325643b59282191a7e7a564e435a415fd3c578eab14": Model(
        "YOLOX-nano (COCO)", "COCO object", "Apache-2.0", "github.com/Megvii-BaseDetection/YOLOX"
    ),
}


def described(sha256: str, layout: str) -> str:
    """A model in one line for the data card: what it is, its file, its licence."""
    model = KNOWN.get(sha256)
    name, licence = (model.name, model.licence) if model else ("a model not known here", UNKNOWN)
    return f"{name}, read as {layout}, sha256 {sha256}; {licence}"

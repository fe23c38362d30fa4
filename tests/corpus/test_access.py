"""Training code cannot reach test or audit clips, nor any ground truth: refused by mypy and at run time."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mypy import api as mypy

from factorjepa.corpus.access import AuditClips, Corpus, TestClips, TrainingClips, ValidationClips
from factorjepa.corpus.loader import EvaluationLoader, Loader
from factorjepa.corpus.splits import Split
from factorjepa.corpus.store import open_store, pack
from factorjepa.corpus.windows import WindowSpec
from factorjepa.errors import CorpusError

from .clips import four_splits, make_clip, make_corpus, shade_of

SPEC = WindowSpec(size=16)
SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module", params=["folder", "shards"])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder / "plain", four_splits())
    if request.param == "shards":
        pack(folder / "plain", folder / "packed", shard_bytes=6_000)
    return Corpus.open(folder / ("packed" if request.param == "shards" else "plain"))


def test_each_kind_holds_its_own_split(corpus: Corpus) -> None:
    kinds = [corpus.training(), corpus.validation(), corpus.evaluation("test"), corpus.audit()]
    assert [type(clips) for clips in kinds] == [TrainingClips, ValidationClips, TestClips, AuditClips]
    assert [{clip.split for clip in clips} for clips in kinds] == [{split} for split in Split]
    assert sum(len(clips) for clips in kinds) == len(corpus.manifest)
    assert type(corpus.evaluation("audit")) is AuditClips


def test_the_training_loader_refuses_every_other_split_at_run_time(corpus: Corpus) -> None:
    for clips in (corpus.validation(), corpus.evaluation("test"), corpus.audit(), list(corpus.manifest)):
        with pytest.raises(CorpusError, match=r"takes TrainingClips, from Corpus\.training\(\), not"):
            Loader(clips, SPEC, batch_size=2, seed=0)  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match="takes EvaluationClips"):
        EvaluationLoader(corpus.training(), SPEC, batch_size=2)  # type: ignore[arg-type]


def test_training_clips_cannot_be_made_from_others(corpus: Corpus, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(CorpusError, match="TrainingClips holds train clips only"):
        TrainingClips(corpus.manifest, store)
    with pytest.raises(CorpusError, match=r"is test and not train \(2 of 2 clips\)"):
        TrainingClips(corpus.manifest.select(split="test"), store)


def test_training_clips_open_nothing_but_their_own_videos(corpus: Corpus) -> None:
    training = corpus.training()
    secret = corpus.evaluation("test")[0]
    with pytest.raises(CorpusError, match="is not among these 6 train clips"):
        training.video(secret)
    relabelled = replace(secret, split=Split.TRAIN)
    with pytest.raises(CorpusError, match="is not among these 6 train clips"):
        training.video(relabelled)
    redirected = replace(training[0], path=secret.path)
    opened, own = training.video(redirected), training.video(training[0])
    assert (opened if isinstance(opened, Path) else opened.read()) == (own if isinstance(own, Path) else own.read())


def test_ground_truth_comes_from_audit_clips_only(corpus: Corpus) -> None:
    audit = corpus.audit()
    truth = np.load(io.BytesIO(audit.truth(audit[0])))
    np.testing.assert_array_equal(truth["agents"], np.arange(5) + shade_of(audit[0]))
    for clips in (corpus.training(), corpus.validation(), corpus.evaluation("test")):
        assert not hasattr(clips, "truth")
    with pytest.raises(CorpusError, match="is not among these 2 audit clips"):
        audit.truth(corpus.training()[0])


MISUSES = {
    "Loader(corpus.evaluation('test'), spec, 2, 0)": 'incompatible type "EvaluationClips"; expected "TrainingClips"',
    "Loader(corpus.validation(), spec, 2, 0)": 'has incompatible type "ValidationClips"; expected "TrainingClips"',
    "Loader(corpus.audit(), spec, 2, 0)": 'has incompatible type "AuditClips"; expected "TrainingClips"',
    "Loader(corpus.manifest.select('train'), spec, 2, 0)": 'incompatible type "Manifest"; expected "TrainingClips"',
    "EvaluationLoader(corpus.training(), spec, 2)": 'incompatible type "TrainingClips"; expected "EvaluationClips"',
    "corpus.evaluation('train')": 'Argument 1 to "evaluation" of "Corpus" has incompatible type',
    "corpus.training().truth(corpus.manifest[0])": '"TrainingClips" has no attribute "truth"',
    "corpus.evaluation('test').truth(corpus.manifest[0])": '"EvaluationClips" has no attribute "truth"',
}


def test_mypy_refuses_what_the_types_forbid_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = [
        "Loader(corpus.training().subset(4, seed=1), spec, 2, 0)",
        "EvaluationLoader(corpus.evaluation('test'), spec, 2)",
        "EvaluationLoader(corpus.audit(), spec, 2)",
        "corpus.audit().truth(corpus.audit()[0])",
    ]
    head = [
        "from pathlib import Path",
        "from factorjepa.corpus.access import Corpus",
        "from factorjepa.corpus.loader import EvaluationLoader, Loader",
        "from factorjepa.corpus.windows import WindowSpec",
        "corpus, spec = Corpus.open(Path('x')), WindowSpec()",
    ]
    snippet, config = tmp_path / "snippet.py", tmp_path / "mypy.ini"
    snippet.write_text("\n".join([*head, *allowed, *MISUSES]) + "\n")
    # torch and friends are left out: they take most of mypy's time and have no part in this question
    skipped = "".join(
        f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in ("torch", "numpy", "av", "cv2", "pyarrow")
    )
    config.write_text(f"[mypy]\nfollow_imports = silent\nignore_missing_imports = true\n{skipped}")
    monkeypatch.setenv("MYPYPATH", str(SRC))
    found, errors, _ = mypy.run(
        ["--config-file", str(config), "--cache-dir", os.devnull, "--no-error-summary", str(snippet)]
    )
    lines = [line for line in found.splitlines() if ": error:" in line]
    assert errors == ""
    assert len(lines) == len(MISUSES)
    for number, (misuse, line) in enumerate(zip(MISUSES, lines, strict=True), len(head) + len(allowed) + 1):
        assert f"snippet.py:{number}: error:" in line
        assert MISUSES[misuse] in line


def test_an_absent_split_is_explained(tmp_path: Path) -> None:
    make_corpus(tmp_path, [make_clip(0)])
    with pytest.raises(CorpusError, match="has no audit clips"):
        Corpus.open(tmp_path).audit()
    with pytest.raises(CorpusError, match="'train' is no evaluation split: choose validation, test, audit"):
        Corpus.open(tmp_path).evaluation("train")  # type: ignore[arg-type]


def test_audit_footage_without_ground_truth_is_explained(tmp_path: Path) -> None:
    make_corpus(tmp_path, [make_clip(0, Split.AUDIT)])
    next(tmp_path.rglob("*.truth.npz")).unlink()
    audit = Corpus.open(tmp_path).audit()
    with pytest.raises(CorpusError, match="has no ground truth"):
        audit.truth(audit[0])


def test_parts_keep_their_type(corpus: Corpus) -> None:
    training = corpus.training()
    for part in (training.subset(3, seed=1), training[:3], training.select(city="navapur")):
        assert type(part) is TrainingClips
    assert set(training.subset(2, seed=1)) < set(training.subset(5, seed=1))


def test_missing_videos_are_listed(tmp_path: Path) -> None:
    clips = four_splits(train=2)
    make_corpus(tmp_path, clips)
    (tmp_path / clips[1].path).unlink()
    assert Corpus.open(tmp_path).missing() == [clips[1]]


def test_only_the_loader_needs_torch() -> None:
    script = (
        "import sys\nfrom factorjepa.corpus import access, composition, manifest, splits, store, windows\n"
        "sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    assert subprocess.run([sys.executable, "-c", script], check=False, env=environment).returncode == 0

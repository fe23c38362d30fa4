"""What should a head read beside its query? Small heads on frozen features of a few hundred clips, on a CPU in minutes.

    factorjepa simulate dense --preset dense --clips 600 --seed 11 "seconds=[6,7]" fps=4
    python benchmarks/look_back.py dense

Encoder and query transformer stay as they come; a two-layer head learns to add to the pretrained prediction, from the
query and from what the context showed at a token's own place. One source in six is kept for validation. It tells which
look back is worth training a model with, and not what such a model will gain.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorjepa import backbones
from factorjepa.backbones.masks import future_split
from factorjepa.backbones.packaged import packaged_weights
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import Loader
from factorjepa.corpus.manifest import Clip
from factorjepa.corpus.windows import WindowSpec
from factorjepa.predictors import MonolithicPredictor
from factorjepa.predictors.query import Question

CONTEXT = 12  # frames
ROWS = 2048  # tokens of a training step
Rows = Sequence[Tensor]  # of tokens: query, what is shown beside it, target
SEEN = ("nothing", "last tubelet", "last two", "all six", "all levels", "3 x 3 places")


class Features(NamedTuple):
    levels: Tensor  # [clips, tubelets, cells, levels, D], each level normalised
    query: Tensor  # [clips, tokens, W]
    target: Tensor  # [clips, tokens, D]
    training: Tensor  # [clips]: not of a source that is kept for validation
    clips: tuple[Clip, ...] = ()
    times: Tensor = torch.empty(0)  # [clips, T]


@torch.no_grad()
def features(
    corpus: Path, size: int, frames: int = CONTEXT, most: int | None = None, kept: int = 6
) -> tuple[Features, nn.Linear]:
    """Of training clips (at most so many), whose first `frames` are the context, and the pretrained head.

    One source in `kept` is not trained on.
    """
    path = packaged_weights("nano")
    assert path is not None
    backbone = backbones.load(path, "nano")
    encoder, predictor = backbone.encoder.float().eval(), backbone.predictor.float()
    model, dim = MonolithicPredictor.graft(predictor).eval(), backbone.spec.dim
    levels, queries, targets, clips, times = [], [], [], [], []
    found = Corpus.open(corpus).training()
    found = found if most is None else found.subset(most, 0)
    for batch in Loader(found, WindowSpec(size=size), batch_size=16, seed=0):
        video = batch.video()
        grid = encoder.grid_of(video)
        split = future_split(grid, frames // backbone.spec.tubelet)
        context, target = (index.expand(len(video), -1) for index in split)
        shown = encoder(video[:, :, :frames], context, levels=True)
        queries.append(model.query(Question(shown, context, target, None, grid, None)))
        targets.append(F.layer_norm(encoder(video)[:, -target.shape[1] :], (dim,)))
        cells = shown.unflatten(-1, (-1, dim)).unflatten(1, (-1, grid[1] * grid[2]))
        levels.append(F.layer_norm(cells, (dim,)))
        clips += batch.clips
        times.append(batch.times)
    validation = set(sorted({clip.source for clip in clips})[::kept])
    training = torch.tensor([clip.source not in validation for clip in clips])
    joined = (torch.cat(parts) for parts in (levels, queries, targets))
    return Features(*joined, training, tuple(clips), torch.cat(times)), model.head


def seen(found: Features, what: str) -> Tensor:
    """What a head is shown of each token's own place, `[clips, tokens, X]`: for all future tubelets the same."""
    last = found.levels[..., -1, :]
    side = round(last.shape[2] ** 0.5)
    shown = {
        "nothing": lambda: last[:, -1] * 0,
        "last tubelet": lambda: last[:, -1],
        "last two": lambda: last[:, -2:].transpose(1, 2).flatten(2),
        "all six": lambda: last.transpose(1, 2).flatten(2),
        "all levels": lambda: found.levels[:, -1].flatten(2),
        "3 x 3 places": lambda: F.unfold(
            last[:, -1].transpose(1, 2).unflatten(2, (side, side)), 3, padding=1
        ).transpose(1, 2),
    }[what]()
    return shown.repeat(1, found.query.shape[1] // shown.shape[1], 1)


class Added(nn.Module):
    """`narrow`: what is shown goes through a layer as wide as the queries, as in a branch that adds it to them."""

    def __init__(self, fields: int, width: int, hidden: int, out: int, narrow: bool, handed_on: bool) -> None:
        super().__init__()
        way = [nn.Linear(fields, width, bias=False)] if narrow else []
        self.seen = nn.Sequential(*way, nn.Linear(width if narrow else fields, hidden, bias=False))
        self.first, self.last = nn.Linear(width, hidden), nn.Linear(hidden, out)
        self.handed_on = nn.Linear(fields, out, bias=False) if handed_on else None
        for layer in (self.last, self.handed_on):
            if layer is not None:
                nn.init.zeros_(layer.weight)

    def forward(self, query: Tensor, shown: Tensor) -> Tensor:
        added: Tensor = self.last(F.gelu(self.first(query) + self.seen(shown)))
        return added if self.handed_on is None else added + self.handed_on(shown)


def left_over(
    found: Features, pretrained: nn.Linear, what: str, hidden: int, narrow: bool, handed_on: bool, epochs: int
) -> float:
    """L1 on the validation sources after training."""
    torch.manual_seed(0)
    shown = seen(found, what)
    head = copy.deepcopy(pretrained)
    added = Added(shown.shape[-1], found.query.shape[-1], hidden, found.target.shape[-1], narrow, handed_on)
    train, check = (
        tuple(tensor[clips].flatten(0, 1) for tensor in (found.query, shown, found.target))
        for clips in (found.training, ~found.training)
    )
    learn(head, added, train, epochs * max(1, len(train[0]) // ROWS))
    with torch.no_grad():
        query, given, wanted = check
        return float((head(query) + added(query, given) - wanted).abs().mean())


def learn(head: nn.Linear, added: nn.Module, train: Rows, steps: int) -> None:
    optimiser = torch.optim.AdamW([*head.parameters(), *added.parameters()], lr=2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    tokens = len(train[0])
    order = torch.cat([torch.randperm(tokens) for _ in range(1 + steps * ROWS // tokens)])
    for step in range(steps):
        query, given, wanted = (tensor[order[step * ROWS : (step + 1) * ROWS]].float() for tensor in train)
        loss = (head(query) + added(query, given) - wanted).abs().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 1024])
    asked = parser.parse_args(arguments)
    found, head = features(asked.corpus, asked.size)
    last = seen(found, "last tubelet")[~found.training]
    print(f"{len(found.query)} clips, {int((~found.training).sum())} of them to validate on")
    print(f"what the last tubelet showed, said again: {float((last - found.target[~found.training]).abs().mean()):.4f}")
    print("| shown | through | handed on | hidden | L1 |\n|---|---|---|---|---|")
    cases = [("nothing", False, False), ("last tubelet", True, False)]
    cases += [(what, False, False) for what in SEEN[1:]] + [("last tubelet", False, True)]
    for hidden in asked.hidden:
        for what, narrow, handed_on in cases:
            error = left_over(found, head, what, hidden, narrow, handed_on, asked.epochs)
            way = "the queries' width" if narrow else "its own"
            print(f"| {what} | {way} | {'yes' if handed_on else 'no'} | {hidden} | {error:.4f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

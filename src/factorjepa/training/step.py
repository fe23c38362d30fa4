"""One update's loss: context encoded alone, future predicted, compared with the momentum encoder's.

Shapes: B clips, c context tokens, t target tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..adaptation.continual import ReleasedPredictor
from ..backbones.encoder import gather_tokens
from ..backbones.masks import POLICIES, released_masks
from ..backbones.pretraining import CONTEXT_WEIGHT, context_loss, context_weights, normalised_levels, target_loss
from ..objective import Losses, objective
from ..peers import ALONE, Peers
from ..seeding import stream
from ..teacher.states import ObjectStates
from ..transfer import sent
from .batches import Scales, TrainingBatch, factor_targets
from .learner import Learner
from .masking import training_masks
from .settings import TrainSettings
from .validation import states_of

TERMS = ("jepa", "factor", "visibility", "separation", "sparsity", "places")


def future_loss(
    learner: Learner, batch: TrainingBatch, scales: Scales | None, masks: str, replication: int, step: int, peers: Peers
) -> tuple[Tensor, dict[str, Tensor]]:
    """eq. L of the method, averaged over the mask policies, and its parts with the vitals of the prediction."""
    method, video = learner.method, batch.video
    wanted = learner.future(video, trunk=batch.trunk)
    grid = learner.context_grid(video)
    targets = None
    if scales is not None and batch.targets is not None and method.reads_targets:
        targets = factor_targets(batch.targets, scales, method.reliability, learner.stage.emphasis)
    passes = training_masks(masks, replication, batch.epoch, batch.clip_ids, grid, step)
    total = torch.zeros((), device=video.device)
    found: list[dict[str, Tensor]] = []
    for visible_here in passes:
        states = states_of(learner, batch.targets, visible_here, video)
        visible = sent(visible_here, video.device)
        prediction = learner.predict(video, visible, states, batch.trunk)
        losses: Losses = objective(prediction, wanted, targets, method.losses, seed=step, peers=peers)
        total = total + losses.total / len(passes)
        found.append({term: getattr(losses, term).detach() for term in TERMS} | prediction.vitals(peers))
        if batch.edited is not None and batch.removed_B is not None:
            change = peers.mean(
                change_loss(learner, batch.edited, batch.removed_B, prediction.tokens_BtD, wanted, visible, states)
            )
            total = total + method.edits * change / len(passes)
            found[-1]["change"] = change.detach()
    means = torch.stack([torch.stack(list(one.values())) for one in found]).mean(0)  # few kernels for many figures
    parts = dict(zip(found[0], means.unbind(), strict=True))
    if targets is not None:
        weights = torch.stack(list(targets.weights))
        parts |= {"target_weight": peers.sum(weights.sum(1).mean()), "coverage": peers.mean((weights > 0).float())}
    return total, parts


def change_loss(
    learner: Learner,
    edited: Tensor,
    removed_B: Tensor,
    predicted_BtD: Tensor,
    wanted_BtD: Tensor,
    visible: Tensor,
    states: ObjectStates | None,
) -> Tensor:
    """L1 between the predicted and the true change of the future when one agent is taken out (FactorJEPA-INT)."""
    left = states.without(removed_B) if states is not None else None
    after = learner.predict(edited, visible, left).tokens_BtD
    return ((after - predicted_BtD) - (learner.future(edited) - wanted_BtD)).abs().mean()


def released_loss(
    learner: Learner, batch: TrainingBatch, seed: int, step: int, peers: Peers
) -> tuple[Tensor, dict[str, Tensor]]:
    """V-JEPA's own objective: the hidden tokens of the whole clip, all levels, and the context re-read.

    Its masks are drawn for the clips of all peers, because they are cut to the shortest of them.
    """
    video, predictor = batch.video, learner.predictor
    assert isinstance(predictor, ReleasedPredictor)
    grid = learner.grid(video)
    with torch.no_grad():
        wanted = normalised_levels(learner.target(video, None, True).float(), learner.spec.dim)
    total = torch.zeros((), device=video.device)
    for number, policy in enumerate(POLICIES):
        random = stream(seed, "released masks", step, number, batch.together[0])
        masks = released_masks(policy, len(batch.together), grid, random)
        own = slice(peers.rank * len(video), (peers.rank + 1) * len(video))
        context, target = sent(masks.context[own], video.device), sent(masks.target[own], video.device)
        levels = learner.encoder(video, context, levels=True)
        predicted, reread = predictor.levels(levels, context, target, grid=grid, mask_token=number)
        weight = context_weights(context, target, grid[1], grid[2])
        loss = target_loss(predicted.float(), gather_tokens(wanted, target))
        loss = loss + CONTEXT_WEIGHT * context_loss(reread.float(), gather_tokens(wanted, context), weight)
        total = total + peers.mean(loss) / len(POLICIES)
    return total, {"jepa": total.detach()}


def loss_of(
    learner: Learner,
    batch: TrainingBatch,
    scales: Scales | None,
    settings: TrainSettings,
    step: int,
    peers: Peers = ALONE,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The method's loss on one pass's clips, those of all peers."""
    if learner.method.objective == "released":
        return released_loss(learner, batch, settings.seed, step, peers)
    return future_loss(learner, batch, scales, settings.masks, settings.replication, step, peers)

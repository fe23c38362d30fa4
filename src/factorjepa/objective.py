"""The five terms of the objective, each a pure function that names its equation, and one that the paper does not have.

Shapes: N clips (B elsewhere), t target tokens, D target width, A agents, P pairs, T width of the factor targets, F
frames of the future.

What is normalised: targets are affine-free LayerNormed last-tap tokens (`normalised_targets`), because that is what the
pretrained predictor was trained to predict and what evaluation compares with; predictions are compared as they are.
L_JEPA is the mean over D where the paper sums, and so the other terms are divided by D (`total`): the
coefficients keep the ratios that the equation gives them. Everything is computed in fp32 or wider.

Where `peers` share the batch, every term is that of the whole batch: N counts the clips of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .errors import TrainingError
from .peers import ALONE, Peers
from .predictors.precision import full
from .predictors.prediction import PerFactor, Prediction
from .teacher.states import GEOMETRY, ObjectStates
from .transfer import sent

_EPSILON = 1e-6  # of weighted means: 0 / (eps + 0) is 0
_VARIANCE_FLOOR = 1e-2  # a channel's mean squared length is about D; one that is still zero must stay zero, not NaN
_BANDWIDTH_FLOOR = 1e-2  # squared, in units of the normalised channel: most rows may be equal (clips without pairs)
# Of the alignment, whose kernels have a mean square of about 0.1. An alignment does not depend on a channel's size, so
# without a floor the gradient on a channel that has just left zero is as large as the channel is small.
_ALIGNMENT_FLOOR = 1e-3
_PLACE = 0.02  # sides of the picture: the unit of L_places


@dataclass(frozen=True)
class LossWeights:
    """Coefficients (Panel C) and the exponent of L_JEPA: 1 is V-JEPA's own and the headline metric's, 2 the paper's."""

    jepa: float = 1.0
    factor: float = 1.0  # lambda_sup
    visibility: float = 0.25  # lambda_V
    separation: float = 0.05  # lambda_sep
    sparsity: float = 0.01  # lambda_sparse
    nonlinear: float = 0.10  # beta_nlin, inside L_sep
    places: float = 0.0  # where agents will be, of predictors that learn how they move; not in the paper
    exponent: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        if self.exponent not in (1, 2):
            raise TrainingError(f"exponent of the JEPA loss must be 1 or 2, got {self.exponent!r}")
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise TrainingError(f"loss weight {field.name} is negative: {getattr(self, field.name)}")


EVEN = PerFactor(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class FactorTargets:
    """What the teacher says about a batch. Weights are `r * omega` (`teacher.batch`): zero leaves a target out."""

    targets: PerFactor[Tensor]  # T_k [N, T], standardised with training statistics
    weights: PerFactor[Tensor]  # [N]
    visibility: Tensor  # T_V [N, agents of the packet], in [0, 1]
    visibility_weights: Tensor  # the same shape
    places: Tensor  # [N, agents of the packet, frames of the window, 2], centre of each one's box
    places_known: Tensor  # bool [N, agents of the packet, frames of the window]
    emphasis: PerFactor[float] = EVEN  # multiplies the terms of L_factor: a curriculum's stress on one of them


@dataclass(frozen=True)
class Losses:
    """The terms without their coefficients, and `total`, which training descends."""

    total: Tensor
    jepa: Tensor
    factor: Tensor
    visibility: Tensor
    separation: Tensor
    sparsity: Tensor
    places: Tensor


def normalised_targets(tokens_NtD: Tensor) -> Tensor:
    """`Y*`: tokens of the target encoder, LayerNormed without affine, in fp32, detached."""
    tokens = full(tokens_NtD.detach())
    return F.layer_norm(tokens, tokens.shape[-1:])


def jepa_loss(predicted_NtD: Tensor, target_NtD: Tensor, exponent: int = 1, peers: Peers = ALONE) -> Tensor:
    """eq. L_JEPA over D: mean of `|Y_hat - Y*|^exponent` over clips, tokens and dimensions."""
    difference = full(predicted_NtD) - full(target_NtD)
    return peers.mean(difference.abs() if exponent == 1 else difference.square())


def factor_loss(
    predicted: PerFactor[Tensor],
    targets: PerFactor[Tensor],
    weights: PerFactor[Tensor],
    emphasis: PerFactor[float] = EVEN,
    peers: Peers = ALONE,
) -> Tensor:
    """eq. L_factor: sum over L, A, I of `sum_n w_n l(T_hat_n, T_n) / (eps + sum_n w_n)`, l the mean squared error.

    `emphasis` multiplies the three terms (1 each in the equation). All three targets are of one width.
    """
    error_3N = (full(torch.stack(list(predicted))) - full(torch.stack(list(targets)))).square().mean(-1)
    weight_3N = torch.stack(list(weights))
    errors_3, weights_3 = peers.sum(torch.stack(((weight_3N * error_3N).sum(1), weight_3N.sum(1)))).unbind()
    terms = (errors_3 / (_EPSILON + weights_3)).unbind()
    return torch.stack([stress * term for stress, term in zip(emphasis, terms, strict=True)]).sum()


def visibility_loss(
    gate_logits_NtA: Tensor,
    valid_NA: Tensor,
    slot_NA: Tensor,
    visibility: Tensor,
    weights: Tensor,
    peers: Peers = ALONE,
) -> Tensor:
    """eq. L_V: reliability-weighted cross-entropy of each agent's gate, max-pooled over tokens.

    Forcing every token's gate open would destroy routing; an agent is visible if some token sees it. `slot` says which
    agent of the packet each one is; padded agents and slots below 0 (agents no teacher knows) weigh nothing.
    """
    logits_NA = full(gate_logits_NtA).amax(1)
    at = slot_NA.clamp(min=0)
    target_NA = full(visibility).gather(1, at) if visibility.shape[1] else torch.zeros_like(logits_NA)
    weight_NA = full(weights).gather(1, at) if weights.shape[1] else torch.zeros_like(logits_NA)
    weight_NA = weight_NA * (valid_NA & (slot_NA >= 0))
    entropy_NA = F.binary_cross_entropy_with_logits(logits_NA, target_NA, reduction="none")
    entropy, weight = peers.sum(torch.stack(((weight_NA * entropy_NA).sum(), weight_NA.sum()))).unbind()
    return entropy / (_EPSILON + weight)


def sparsity_loss(strengths_NtP: Tensor, pair_valid_NP: Tensor, peers: Peers = ALONE) -> Tensor:
    """eq. L_sparse: `1/N sum_n 1/M_n sum_ij w_ij`, w averaged over target tokens."""
    count_N = pair_valid_NP.sum(1).clamp(min=1)
    summed_N = (full(strengths_NtP) * pair_valid_NP[:, None]).mean(1).sum(-1)
    return peers.mean(summed_N / count_N)


def places_loss(states: ObjectStates, places: Tensor, known: Tensor, peers: Peers = ALONE) -> Tensor:
    """L_places: how much farther or less far the agents' states have them go than they went, mean L1 in `_PLACE`.

    From where an agent was when the states saw it last to each frame of the future that shows it: of a box that the
    mask has cut, the centre is wrong, and no motion could make up for it. `states` are those of the prediction.
    """
    frames = places.shape[2] - states.context
    ahead_F = torch.arange(1, frames + 1, device=places.device, dtype=places.dtype)
    centre_NA12 = states.geometry_BNG[..., None, :2]
    said_NAF2 = full(states.extrapolated_boxes(ahead_F)[..., :2] - centre_NA12)
    gap_NA = states.geometry_BNG.detach()[..., GEOMETRY.index("gap")] * states.context
    row_N1, slot_NA = torch.arange(len(places), device=places.device)[:, None], states.slot_BN.clamp(min=0)
    last_NA = (states.context - 1 - gap_NA.round().long()).clamp(min=0)
    went_NAF2 = full(places[row_N1, slot_NA][:, :, states.context :] - places[row_N1, slot_NA, last_NA][:, :, None])
    weight_NAF = known[row_N1, slot_NA][:, :, states.context :] & (
        known[row_N1, slot_NA, last_NA] & states.valid_BN & (states.slot_BN >= 0)
    ).unsqueeze(-1)
    error_NAF = (said_NAF2 - went_NAF2).abs().mean(-1) / _PLACE
    error, weight = peers.sum(torch.stack(((weight_NAF * error_NAF).sum(), weight_NAF.sum()))).unbind()
    return error / (_EPSILON + weight)


def variance_normalised(channels: PerFactor[Tensor], peers: Peers = ALONE) -> Tensor:
    """Own rows of the channels `[3, n, D]`, centred, over the root of their mean squared length, in all peers' rows."""
    rows = torch.stack([full(channel).flatten(0, -2) for channel in channels])
    count = rows.shape[1] * peers.world
    rows = rows - peers.sum(rows.sum(1, keepdim=True)) / count
    length = peers.sum(rows.square().sum((1, 2), keepdim=True)) / count
    return rows / (length + _VARIANCE_FLOOR).sqrt()


def covariance_loss(rows_3nD: Tensor, peers: Peers = ALONE) -> Tensor:
    """eq. L_cov: `2 sum_{k<k'} |Gamma_kk'|_F^2`, covariances over all rows of variance-normalised channels."""
    moments_3DD = peers.sum(rows_3nD.transpose(1, 2) @ _next(rows_3nD))
    return 2 * (moments_3DD / (rows_3nD.shape[1] * peers.world)).square().sum()


def nonlinear_loss(rows_3nD: Tensor, most: int = 256, seed: int = 0, peers: Peers = ALONE) -> Tensor:
    """eq. L_nlin: centred RBF alignment, `sum_{k<k'} tr(K_k K_k') / (|K_k|_F |K_k'|_F + eps)`, K divided by its rows.

    On at most `most` rows of the variance-normalised channels, the same for all, drawn by `seed`: Gram matrices of all
    tokens of a batch would not fit.
    """
    kernels_3mm = _centred_rbf(_drawn_rows(rows_3nD, most, seed, peers))
    lengths_3: Tensor = torch.linalg.vector_norm(kernels_3mm, dim=(1, 2))
    alignment_3 = (kernels_3mm * _next(kernels_3mm)).sum((1, 2)) / (lengths_3 * _next(lengths_3) + _ALIGNMENT_FLOOR)
    return torch.sum(alignment_3)


def separation_loss(
    channels: PerFactor[Tensor], nonlinear: float, rows: int = 256, seed: int = 0, peers: Peers = ALONE
) -> Tensor:
    """eq. L_sep: `L_cov + beta_nlin L_nlin`."""
    normalised = variance_normalised(channels, peers)
    loss = covariance_loss(normalised, peers)
    return loss + nonlinear * nonlinear_loss(normalised, rows, seed, peers) if nonlinear else loss


def objective(
    prediction: Prediction,
    target_NtD: Tensor,
    factor_targets: FactorTargets | None = None,
    weights: LossWeights | None = None,
    seed: int = 0,
    peers: Peers = ALONE,
) -> Losses:
    """eq. L: `L_JEPA + (lambda_sep L_sep + lambda_sparse L_sparse + lambda_V L_V + lambda_sup L_factor) / D`.

    `target` is `normalised_targets(...)`. A term whose path the predictor does not have, whose weight is 0 or whose
    targets are not given is 0. L_places, which the equation does not have, is added to the bracket. `seed` draws the
    rows of L_nlin (the step's number will do).
    """
    weights = weights or LossWeights()
    with torch.autocast(target_NtD.device.type, enabled=False):
        jepa = jepa_loss(prediction.tokens_BtD, target_NtD, weights.exponent, peers)
        zero = jepa.new_zeros(())
        factor = visibility = separation = sparsity = places = zero
        states = prediction.states
        if weights.factor and factor_targets is not None and prediction.factor_targets is not None:
            factor = factor_loss(
                prediction.factor_targets, factor_targets.targets, factor_targets.weights, factor_targets.emphasis,
                peers,
            )  # fmt: skip
        if weights.visibility and factor_targets is not None and prediction.gate_logits_BtN is not None:
            assert states is not None
            visibility = visibility_loss(
                prediction.gate_logits_BtN, states.valid_BN, states.slot_BN,
                factor_targets.visibility, factor_targets.visibility_weights, peers,
            )  # fmt: skip
        if weights.sparsity and prediction.strengths_BtP is not None:
            assert states is not None
            sparsity = sparsity_loss(prediction.strengths_BtP, states.pair_valid_BP, peers)
        if weights.separation and prediction.channels is not None:
            separation = separation_loss(prediction.channels, weights.nonlinear, seed=seed, peers=peers)
        if weights.places and factor_targets is not None and states is not None:
            places = places_loss(states, factor_targets.places, factor_targets.places_known, peers)
        others = (
            weights.factor * factor
            + weights.visibility * visibility
            + weights.separation * separation
            + weights.sparsity * sparsity
            + weights.places * places
        )
        total = weights.jepa * jepa + others / target_NtD.shape[-1]
    return Losses(total, jepa, factor, visibility, separation, sparsity, places)


def _next(channels_3: Tensor) -> Tensor:
    """Beside each of the three channels another one, so that every pair meets once."""
    return channels_3.roll(1, 0)


def _drawn_rows(rows_3nD: Tensor, most: int, seed: int, peers: Peers) -> Tensor:
    """At most `most` of all peers' rows: each puts its own in place and zeros elsewhere; they are added."""
    own = rows_3nD.shape[1]
    drawn = torch.arange(own * peers.world)
    if len(drawn) > most:
        drawn = torch.randperm(len(drawn), generator=torch.Generator().manual_seed(seed))[:most].sort().values
    drawn = sent(drawn, rows_3nD.device) - peers.rank * own
    mine = (drawn >= 0) & (drawn < own)
    return peers.sum(rows_3nD[:, drawn.clamp(0, own - 1)] * mine[:, None])


def _centred_rbf(rows_3nD: Tensor) -> Tensor:
    """`H K H / n` of each channel, with `K = exp(-|x - y|^2 / (2 sigma^2))`, sigma the stop-gradient median distance.

    All channels at once: the kernels of small models take longer to launch than to run.
    """
    count = rows_3nD.shape[1]
    length_3n = rows_3nD.square().sum(-1)
    products_3nn = rows_3nD @ rows_3nD.transpose(1, 2)
    distance_3nn = (length_3n[:, :, None] + length_3n[:, None] - 2 * products_3nn).clamp(min=0)  # squared
    if count < 2:
        return torch.zeros_like(distance_3nn)
    first, second = torch.triu_indices(count, count, 1, device=rows_3nD.device)
    variance_3 = distance_3nn.detach()[:, first, second].median(dim=1).values + _BANDWIDTH_FLOOR
    kernel = torch.exp(-distance_3nn / (2 * variance_3[:, None, None]))
    centred = kernel - kernel.mean(1, keepdim=True) - kernel.mean(2, keepdim=True) + kernel.mean((1, 2), keepdim=True)
    return centred / count

"""Arithmetic counted from the spec: what a clip costs, whoever computes it and however.

A product of `[m, k]` and `[k, n]` counts `2 m k n`. A block's forward pass on n tokens of width D, with M hidden, of
which m come out (all, but for the last blocks of target and predictor, of which only the future is read), is

    n 6 D^2 + m (2 D^2 + 4 D M) + 4 m n D          qkv; proj and MLP; scores and their sum over values

A backward pass goes through every block above the lowest one that trains. There it costs what the forward pass of the
linear layers costs (gradients of what goes in), twice its attention, and `2 n` for each weight that trains. One update
shows a clip to

    target       all tokens of the clip, forwards; with the frozen-trunk cache only through the blocks above the cut
    context      the visible tokens of each mask policy, forwards through all blocks (of a pass that shows the whole
                 context and is in the cache, those above the cut) and backwards
    predictor    Q, branches, dictionaries and the covariances of L_sep, forwards and backwards, for each policy

Not counted: norms, softmax, GELU, rotary turns, optimiser; what is computed again to save memory; gathers that are done
as products; tokens that agents bring along, how pairs move them, and DoRA's lengths of weights. So the share of the
peak (`mfu`) is a lower bound of how busy the arithmetic units are. The peak is that of bf16, whatever a block
multiplies in: products in eight bits are done at up to twice of it.

Shapes: c context tokens, t target tokens, N agents, P pairs of a clip.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..backbones.spec import BackboneSpec
from ..predictors import FactorizedOptions, MonolithicOptions
from ..predictors.geometry import RELATIVE

# Dense bf16 products per second as the maker states them, by a part of the device's name.
NOMINAL = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "B200": 2250e12}


@dataclass(frozen=True)
class ClipFlops:
    """Of one clip in one update, or of one prediction (no target, nothing backwards)."""

    target: float
    context: float
    predictor: float

    @property
    def total(self) -> float:
        return self.target + self.context + self.predictor


def nominal_peak(device_name: str) -> float | None:
    return next((peak for part, peak in NOMINAL.items() if part in device_name), None)


def block_flops(tokens: int, dim: int, hidden: int, tail: int | None = None) -> float:
    """Forward pass of one block; with a `tail`, of one from which so many tokens come out."""
    out = tokens if tail is None else tail
    return tokens * 6 * dim**2 + out * (2 * dim**2 + 4 * dim * hidden) + 4 * out * tokens * dim


def encoder_flops(spec: BackboneSpec, tokens: int, blocks: int, tail: int | None = None) -> float:
    """Forward pass of `blocks` of the encoder's blocks; with a `tail`, the last of them is the encoder's last."""
    whole = block_flops(tokens, spec.dim, spec.mlp_hidden)
    spared = 0.0 if tail is None or not blocks else whole - block_flops(tokens, spec.dim, spec.mlp_hidden, tail)
    return blocks * whole - spared


def tokeniser_flops(spec: BackboneSpec, tokens: int) -> float:
    return 2 * tokens * 3 * spec.tubelet * spec.patch**2 * spec.dim


def query_flops(spec: BackboneSpec, context: int, target: int) -> float:
    """Forward pass of Q: the embedding of the context and the predictor's blocks on context and target."""
    width = spec.predictor_dim
    embedding = (
        spec.dim * width if spec.predictor_in_width == spec.dim else (spec.predictor_in_width + width) * spec.dim
    )
    tokens, hidden = context + target, 4 * width
    blocks = (spec.predictor_depth - 1) * block_flops(tokens, width, hidden)
    return 2 * context * embedding + blocks + block_flops(tokens, width, hidden, target)


def head_flops(
    spec: BackboneSpec, options: FactorizedOptions | MonolithicOptions, target: int, agents: int, pairs: int
) -> float:
    """Forward pass of what follows Q: the branches by parts, and dictionaries or the dense head."""
    width, dim, hidden = spec.predictor_dim, spec.dim, options.hidden
    pairs = 0 if options.interactions == "off" else pairs

    def dense_pairs(out: int) -> float:
        """Their hidden states are summed, and the last layer, which is linear, reads the sum."""
        return 2 * target * hidden * (2 * pairs + out)

    said: list[tuple[int, float]]  # of each place where agents are heard: how wide what they say is; what pairs cost
    if isinstance(options, FactorizedOptions):
        ranks = options.scaled_ranks
        out = width * ranks.layout + dim * sum(ranks) + (width * dim if options.residual else 0)
        of_pairs: float = 2 * target * pairs * (hidden * (ranks.interactions + 1) + ranks.interactions)
        said, recalled = [(ranks.agents, of_pairs)], ranks.layout
        if options.injection in ("early", "both"):
            said.append((width, dense_pairs(width)))
    else:
        out = width * dim + 2 * width * options.extra_hidden
        late, recalled = dim if options.direct else width, dim
        widths = {"none": (), "early": (width,), "late": (late,), "both": (width, late)}[options.injection]
        said = [(one, dense_pairs(one)) for one in widths]
    if options.recalled:
        shown = (dim + 1) * (2 if options.recall_follows else 1)
        out += options.recall_hidden * (width + shown + recalled) + shown * recalled
        out += hidden * (width + 2) if options.recall_follows else 0
    firsts = 2 * 1 + 2 * 2  # g_A and g_V, and both sides of g_I and g_W
    parts = firsts * 2 * hidden * (width * (target + agents) + len(RELATIVE) * agents * target)
    branches = 0.0
    for of_agents, paired in said:
        branches += parts + 2 * target * hidden * (2 * agents + of_agents) + paired
    return 2 * target * out + branches


def separation_flops(spec: BackboneSpec, options: FactorizedOptions | MonolithicOptions, target: int) -> float:
    """Three covariances of channels, `[D, rows] [rows, D]`."""
    return 3 * 2 * target * spec.dim**2 if isinstance(options, FactorizedOptions) else 0.0


def prediction_flops(
    spec: BackboneSpec,
    options: FactorizedOptions | MonolithicOptions,
    context: int,
    target: int,
    agents: int,
    pairs: int,
) -> ClipFlops:
    """One prediction from the whole context."""
    encoder = tokeniser_flops(spec, context) + encoder_flops(spec, context, spec.depth)
    predictor = query_flops(spec, context, target) + head_flops(spec, options, target, agents, pairs)
    return ClipFlops(0.0, encoder, predictor)


def block_weights(spec: BackboneSpec) -> int:
    """Of the linear layers of one block of the encoder."""
    return 4 * spec.dim**2 + 2 * spec.dim * spec.mlp_hidden


def backward_flops(spec: BackboneSpec, tokens: int, blocks: int, weights: float) -> float:
    """Backward pass through `blocks` of the encoder's blocks, of whose linear layers so many weights train."""
    inputs = 2 * tokens * block_weights(spec) + 2 * 4 * tokens**2 * spec.dim
    return blocks * inputs + 2 * tokens * weights


@dataclass(frozen=True)
class Trained:
    """What of a model trains."""

    blocks: int  # of the encoder, from the lowest that trains up: gradients pass through all of these
    weights: float  # of their linear layers, those that train
    added: float = 0.0  # weights that adapters have beside those of the spec's blocks, which train too
    predictor: float = 1.0  # the share of the predictor that trains


def update_flops(
    spec: BackboneSpec,
    options: FactorizedOptions | MonolithicOptions,
    trained: Trained,
    *,
    clip: int,
    target: int,
    visible: tuple[int, ...],
    agents: int,
    pairs: int,
    cached: float = 0.0,
    cached_context: int | None = None,
) -> ClipFlops:
    """One clip in an update. `clip`, `target` and `visible` are tokens: of the whole clip, of its future, and of the
    context in each pass; `cached` is the share of clips whose trunk is read, in passes of `cached_context` tokens too.
    """

    def forwards(tokens: int, tail: int | None, share_read: float) -> float:
        whole = tokeniser_flops(spec, tokens) + encoder_flops(spec, tokens, spec.depth, tail)
        above = encoder_flops(spec, tokens, trained.blocks, tail)
        return (1.0 - share_read) * whole + share_read * above + 2 * tokens * trained.added

    context = predictor = 0.0
    for shown in visible:
        context += forwards(shown, None, cached if shown == cached_context else 0.0)
        context += backward_flops(spec, shown, trained.blocks, trained.weights) + 4 * shown * trained.added
        forward = query_flops(spec, shown, target) + head_flops(spec, options, target, agents, pairs)
        predictor += (2 + trained.predictor) * forward + 3 * separation_flops(spec, options, target)
    return ClipFlops(forwards(clip, target, cached), context, predictor)

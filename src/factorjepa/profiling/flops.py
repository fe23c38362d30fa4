"""Arithmetic counted from the spec: what a clip costs, whoever computes it and however.

A product of `[m, k]` and `[k, n]` counts `2 m k n`. A block's forward pass on n tokens of width D, with M hidden, of
which m come out (all, but for the last blocks of target and predictor, of which only the future is read), is

    n 6 D^2 + m (2 D^2 + 4 D M) + 4 m n D          qkv; proj and MLP; scores and their sum over values

A backward pass counts twice the forward pass of what trains. One update shows a clip to

    target       all tokens of the clip, forwards; with the frozen-trunk cache only through the blocks above the cut
    context      the visible tokens of each mask policy, forwards through all blocks, backwards through those that train
    predictor    Q, branches, dictionaries and the covariances of L_sep, forwards and backwards, for each policy

Not counted: norms, softmax, GELU, rotary turns, optimiser; what is computed again to save memory; and gathers that are
done as products. So the share of the peak (`mfu`) is a lower bound of how busy the arithmetic units are. The peak is
that of bf16, whatever a block multiplies in: products in eight bits are done at up to twice of it.

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
    width, hidden = spec.predictor_dim, options.hidden
    injections = {"none": 0, "late": 1, "early": 1, "both": 2}[options.injection]
    if isinstance(options, FactorizedOptions):
        layout, in_agents, in_pairs = options.ranks
        out = width * layout + spec.dim * sum(options.ranks)
        injections = max(injections, 1)
    else:
        in_agents = in_pairs = width
        out = width * spec.dim
    firsts = 2 * 1 + 2 * 2  # g_A and g_V, and both sides of g_I and g_W
    parts = firsts * 2 * hidden * (width * (target + agents) + len(RELATIVE) * agents * target)
    gated = 2 * target * hidden * (2 * agents + in_agents)
    paired = 2 * target * pairs * (hidden * (in_pairs + 1) + in_pairs)
    return 2 * target * out + injections * (parts + gated + paired)


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


def update_flops(
    spec: BackboneSpec,
    options: FactorizedOptions | MonolithicOptions,
    *,
    clip: int,
    target: int,
    visible: tuple[int, ...],
    trained: int,
    agents: int,
    pairs: int,
    cached: float = 0.0,
) -> ClipFlops:
    """One clip in an update. `clip`, `target` and `visible` are tokens: of the whole clip, of its future, and of the
    context in each pass; `trained` blocks train; `cached` is the share of clips whose trunk is read."""
    whole = tokeniser_flops(spec, clip) + encoder_flops(spec, clip, spec.depth, target)
    above = encoder_flops(spec, clip, trained, target)
    target_pass = (1.0 - cached) * whole + cached * above
    context = predictor = 0.0
    for shown in visible:
        context += tokeniser_flops(spec, shown) + encoder_flops(spec, shown, spec.depth)
        context += 2 * encoder_flops(spec, shown, trained)
        forward = query_flops(spec, shown, target) + head_flops(spec, options, target, agents, pairs)
        predictor += 3 * (forward + separation_flops(spec, options, target))
    return ClipFlops(target_pass, context, predictor)

"""Trainable parameters, counted: matched methods must lie within 5 % of those of FactorJEPA beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..backbones.spec import BackboneSpec
from ..predictors import MonolithicOptions
from .method import Method
from .prepare import ADAPTERS, Scope, count_trainable

TOLERANCE = 0.05

# What the paper's Panel D states, in millions. The released architectures differ from the paper's table, so that our
# counts differ from these too.
PAPER: dict[str, dict[str, float]] = {
    "vjepa2_1_vit_giant_384": {
        "full": 1040.0, "lora": 68.0, "dora": 69.0, "auto_rgn": 68.0, "factorjepa_raw": 73.0, "factorjepa": 73.0,
    },
    "vjepa2_1_vit_gigantic_384": {
        "full": 2040.0, "lora": 114.0, "dora": 116.0, "auto_rgn": 111.0, "factorjepa_raw": 115.0, "factorjepa": 115.0,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Budget:
    """One method's count beside the common budget."""

    method: Method
    trainable: int
    budget: int  # the count of the FactorJEPA beside it
    advice: str = ""  # what to change where a matched method lies outside

    @property
    def deviation(self) -> float:
        return self.trainable / self.budget - 1.0

    @property
    def within(self) -> bool:
        return not self.method.matched or abs(self.deviation) <= TOLERANCE


def budgets(arch: str | BackboneSpec, scope: Scope, methods: Sequence[Method], budget: int) -> list[Budget]:
    """Every method's count for an architecture, beside the budget: FactorJEPA's own count."""
    rows = []
    for method in methods:
        row = Budget(method, count_trainable(arch, levelled(arch, method, scope, budget), scope), budget)
        rows.append(row if row.within else dataclasses.replace(row, advice=_advice(arch, row, scope)))
    return rows


def levelled(arch: str | BackboneSpec, method: Method, scope: Scope, budget: int) -> Method:
    """A matched monolithic method, brought within the budget where it lies outside.

    One that is too small gets a residual MLP before its head, one that is too large narrower branches: at large scale
    neither is needed, at nano scale heads and dictionaries weigh as much as an encoder block.
    """
    if not method.matched or not isinstance(method.predictor, MonolithicOptions) or method.encoder in ADAPTERS:
        return method
    row = Budget(method, count_trainable(arch, method, scope), budget)
    if row.within:
        return method
    field = "extra_hidden" if row.deviation < 0 else "hidden"

    def sized(value: int) -> Method:
        assert isinstance(method.predictor, MonolithicOptions)
        return dataclasses.replace(method, predictor=method.predictor.replace(**{field: value}))

    return sized(_solve(lambda value: count_trainable(arch, sized(value), scope), budget))


def matching_rank(arch: str | BackboneSpec, method: Method, scope: Scope, budget: int) -> int:
    """The rank whose count lies nearest to the budget."""
    return _solve(lambda rank: count_trainable(arch, method, dataclasses.replace(scope, rank=rank)), budget)


def _solve(count: Callable[[int], int], budget: int) -> int:
    """Where a count that is affine in one whole number meets the budget: two of its values give all."""
    one, two = count(1), count(2)
    return max(1, round((budget - one) / (two - one)) + 1)


def _advice(arch: str | BackboneSpec, row: Budget, scope: Scope) -> str:
    if row.method.encoder in ADAPTERS:
        return f"set lora_rank: {matching_rank(arch, row.method, scope, row.budget)} (it is {scope.rank})"
    return f"{'raise' if row.deviation < 0 else 'lower'} trainable_blocks (it is {scope.blocks})"

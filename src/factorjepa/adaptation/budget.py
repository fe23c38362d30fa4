"""Trainable parameters, counted: matched methods must lie within 5 % of FactorJEPA's number."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .factor import FACTORJEPA
from .method import Method
from .prepare import ADAPTERS, Scope, count_trainable
from .registry import METHODS

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
    budget: int  # FactorJEPA's count
    advice: str = ""  # what to change where a matched method lies outside

    @property
    def deviation(self) -> float:
        return self.trainable / self.budget - 1.0

    @property
    def within(self) -> bool:
        return not self.method.matched or abs(self.deviation) <= TOLERANCE


def budgets(arch: str, scope: Scope, methods: list[Method] | None = None) -> list[Budget]:
    """Every method's count for an architecture."""
    budget = count_trainable(arch, FACTORJEPA, scope)
    rows = []
    for method in methods or list(METHODS.values()):
        trainable = budget if method == FACTORJEPA else count_trainable(arch, method, chosen_for(arch, method, scope))
        row = Budget(method, trainable, budget)
        rows.append(row if row.within else dataclasses.replace(row, advice=_advice(arch, row, scope)))
    return rows


def chosen_for(arch: str, method: Method, scope: Scope) -> Scope:
    """For counting: any K blocks weigh the same, so `chosen` counts the top ones."""
    from ..backbones.spec import resolve

    depth = resolve(arch).depth
    return dataclasses.replace(scope, chosen=tuple(range(depth - scope.blocks, depth))) if not scope.chosen else scope


def _advice(arch: str, row: Budget, scope: Scope) -> str:
    if row.method.encoder in ADAPTERS:
        rank = matching_rank(arch, row.method, scope, row.budget)
        return f"set lora_rank: {rank} (it is {scope.rank})"
    if row.method.encoder in ("top", "chosen"):
        return f"{'raise' if row.deviation < 0 else 'lower'} trainable_blocks (it is {scope.blocks})"
    return "the method has no setting for its size"


def matching_rank(arch: str, method: Method, scope: Scope, budget: int) -> int:
    """The rank whose count lies nearest to the budget. Counts are affine in the rank, so two of them give all."""
    one, two = (count_trainable(arch, method, dataclasses.replace(scope, rank=rank)) for rank in (1, 2))
    return max(1, round((budget - one) / (two - one)) + 1)

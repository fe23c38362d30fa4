"""A diagnostic's variant as a diagnostic of its own: the error on agents' tokens gets contrasts and decisions too."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ScoresError
from ..scores import Scores
from ..words import nearest
from .measures import direction_of, unit_of

SEPARATOR = "/"  # future_l1/teacher_agents
# What a score is made of or read beside: a method is not better for more or less of it.
_NEITHER = re.compile(r"(.*_)?(chance|numerator|denominator|magnitude|near_zero|retained|reversed)(/.*)?")


def with_variants(scores: Scores, asked: Sequence[str]) -> Scores:
    """The same scores, and those of the `asked` variants, `DIAGNOSTIC/VARIANT`, under that name as companions.

    Their contrasts are adjusted among those that were asked for, so that no other decision depends on what was. Those
    that stand there already are left as they are.
    """
    asked = [name for name in dict.fromkeys(asked) if SEPARATOR not in name or name not in scores.diagnostics]
    diagnostics, tables = dict(scores.diagnostics), [scores.table]
    for name in asked:
        diagnostic, slash, variant = name.partition(SEPARATOR)
        info = scores.diagnostics.get(diagnostic)
        if not (slash and variant):
            raise ScoresError(f"{name}: a variant is named as DIAGNOSTIC/VARIANT, for example future_l1/teacher_agents")
        if info is None:
            known = scores.diagnostics
            raise ScoresError(f"{name}: the scores hold no diagnostic {diagnostic!r}{nearest(diagnostic, known)}")
        rows = scores.select(diagnostic=diagnostic)
        variants = rows.values("variant")
        if variant not in variants:
            raise ScoresError(
                f"{name}: {diagnostic} has no variant {variant!r}{nearest(variant, variants)}; there are: "
                + ", ".join(variants)
            )
        if info.reduction != "mean" or variant == info.headline:
            raise ScoresError(f"{name}: {info.title} is compared by that already, or by what is worked out of it")
        if not is_better_for_more_or_less(variant):
            raise ScoresError(f"{name}: of {variant} neither more nor less is better: it is told beside {info.title}")
        table = rows.select(variant=variant).table
        at = table.column_names.index("diagnostic")
        named = pa.array([name] * table.num_rows).dictionary_encode()
        tables.append(table.set_column(at, "diagnostic", pc.cast(named, table.schema.field(at).type)))
        diagnostics[name] = dataclasses.replace(
            info, name=name, title=f"{info.title} ({variant})", headline=variant, status="companion",
            direction=direction_of(info, variant), unit=unit_of(info, variant),
        )  # fmt: skip
    return Scores(pa.concat_tables(tables), diagnostics, scores.evaluator, scores.runs) if asked else scores


def is_better_for_more_or_less(variant: str) -> bool:
    return _NEITHER.fullmatch(variant) is None

"""One table over all studies: what explains the gain over Auto-RGN, step by step, with intervals and seeds.

    python benchmarks/explain_table.py --page docs/results/README.md

Everything comes from the tables that `factorjepa compare` wrote (`docs/results/*/report/tables`); nothing is computed
here, and the page keeps its own words around the table.
"""

from __future__ import annotations

import argparse
import csv
import functools
import sys
from pathlib import Path
from typing import NamedTuple

from factorjepa.storage import write_text

RESULTS = Path(__file__).parents[1] / "docs" / "results"
BEGIN, END = "<!-- table: benchmarks/explain_table.py -->", "<!-- end of table -->"
HEAD = (
    "what is added", "Future-frame L1: gain", "%", "by seed (17, 29, 43)", "Masking AUC: gain", "Intervention L1: gain",
    "test clips; page",
)  # fmt: skip


class Step(NamedTuple):
    words: str
    study: str
    backbone: str
    to: str
    beside: str


GROUPS: dict[str, tuple[Step, ...]] = {
    "The paper's form (top blocks), over Auto-RGN": (
        Step("architecture without targets (RAW)", "nano_study", "nano", "factorjepa_raw", "auto_rgn"),
        Step("architecture, targets and curriculum", "nano_study", "nano", "factorjepa", "auto_rgn"),
    ),
    "The paper's form, part by part": (
        Step("targets and curriculum, over RAW", "nano_study", "nano", "factorjepa", "factorjepa_raw"),
        Step("channels instead of a dense head that is given the same", "nano_study", "nano", "factorjepa",
             "mono_matched_late"),
        Step("own targets instead of other clips'", "nano_ablations", "nano", "factorjepa", "shuffled_targets"),
        Step("own targets instead of another moment's", "nano_ablations", "nano", "factorjepa", "misaligned_targets"),
        Step("the loss on targets (L_factor)", "nano_ablations", "nano", "factorjepa", "no_factor_loss"),
        Step("the interaction channel (with its parameters)", "nano_ablations", "nano", "factorjepa",
             "no_interaction_path"),
        Step("the curriculum", "nano_ablations", "nano", "factorjepa", "no_curriculum"),
        Step("twice the ranks (7 % more parameters)", "nano_ablations", "nano", "double_ranks", "factorjepa"),
        Step("Auto-RGN's blocks instead of the top ones", "nano_ablations", "nano", "factorjepa_chosen", "factorjepa"),
    ),
    "On Auto-RGN's blocks": (
        Step("late states in channels, no targets, stages or views", "nano_chosen_study", "nano",
             "factorjepa_raw_chosen", "auto_rgn"),
        Step("FactorJEPA's stages and factor views alone", "nano_chosen_study", "nano", "auto_rgn_views", "auto_rgn"),
        Step("to that, states and targets through a dense head", "nano_chosen_study", "nano",
             "mono_matched_late_chosen", "auto_rgn_views"),
        Step("channels instead of that head, branches at its rate", "nano_chosen_study", "nano",
             "factorjepa_chosen@slow", "mono_matched_late_chosen"),
        Step("channels instead of that head, branches at four times its rate", "nano_chosen_study", "nano",
             "factorjepa_chosen", "mono_matched_late_chosen"),
        Step("all of FactorJEPA, over Auto-RGN", "nano_chosen_study", "nano", "factorjepa_chosen", "auto_rgn"),
        Step("over Auto-RGN with stages and views", "nano_chosen_study", "nano", "factorjepa_chosen",
             "auto_rgn_views"),
        Step("over the same in as much time", "nano_chosen_study", "nano", "factorjepa_chosen", "auto_rgn_views@long"),
        Step("own targets instead of other clips' (early and late states)", "nano_chosen_study", "nano",
             "factorjepa_both_chosen", "shuffled_targets_both_chosen"),
    ),
    "A look back, on Auto-RGN's blocks": (
        Step("a wide branch that is shown nothing (23 % more parameters)", "nano_look", "nano",
             "auto_rgn_views@blind", "auto_rgn_views"),
        Step("to that, the look back itself (from here on as many parameters)", "nano_look", "nano",
             "auto_rgn_views@look", "auto_rgn_views@blind"),
        Step("to that, agents, pairs and targets through a dense head", "nano_look", "nano",
             "mono_direct_late_chosen@look", "auto_rgn_views@look"),
        Step("channels instead of that head", "nano_look", "nano", "factorjepa_chosen@look",
             "mono_direct_late_chosen@look"),
    ),
    "Two seconds ahead, 128 px, with a look back": (
        Step("agents, pairs and targets through a dense head", "nano_two", "nano", "mono_direct_late_chosen@look",
             "auto_rgn_views@look"),
        Step("channels instead of that head", "nano_two", "nano", "factorjepa_chosen@look",
             "mono_direct_late_chosen@look"),
        Step("to that, agents that move and are told where they will be", "nano_two", "nano",
             "future_places_chosen@look", "factorjepa_chosen@look"),
    ),
    "On `small` (21 M), Auto-RGN's blocks": (
        Step("FactorJEPA's stages and factor views alone", "small_study", "small", "auto_rgn_views", "auto_rgn"),
        Step("to that, states (early and late) and targets through a dense head", "small_study", "small",
             "mono_matched_chosen", "auto_rgn_views"),
        Step("channels instead of that head, branches at its rate", "small_study", "small",
             "factorjepa_both_chosen@slow", "mono_matched_chosen"),
        Step("all of FactorJEPA, over Auto-RGN", "small_study", "small", "factorjepa_both_chosen", "auto_rgn"),
    ),
}  # fmt: skip


@functools.cache
def rows(study: str, name: str) -> list[dict[str, str]]:
    with (RESULTS / study / "report" / "tables" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def found(step: Step, diagnostic: str) -> dict[str, str]:
    wanted = (step.backbone, step.to, step.beside, diagnostic)
    return next(r for r in rows(step.study, "contrasts") if (r["backbone"], r["a"], r["b"], r["diagnostic"]) == wanted)


def gain(row: dict[str, str]) -> str:
    decision = row["decision"].partition(":")[0].partition(",")[0]
    unstable = ", unstable" if row["decision"].endswith("unstable") or row["stable"] == "False" else ""
    interval = f"{float(row['effect']):+.4f} [{float(row['low']):+.4f}, {float(row['high']):+.4f}]"
    bold = "**" if decision in ("better", "worse") and not unstable else ""
    return f"{bold}{interval}{bold}<br>{decision}{unstable}"


def area(step: Step) -> str:
    """Under the masking curve: an interval over cities, and no decision of its own."""
    for row in (*rows(step.study, "explained"), *rows(step.study, "parts")):
        of = (row["backbone"], row["a"], row["b"], row["diagnostic"], row["variant"])
        if of == (step.backbone, step.to, step.beside, "mask_slope", "alt/auc"):
            return f"{float(row['effect']):+.4f} [{float(row['low']):+.4f}, {float(row['high']):+.4f}]"
    return ""


def cells(step: Step) -> list[str]:
    error, edited = found(step, "future_l1"), found(step, "intervention_l1")
    seeds = " ".join(f"{float(value):+.4f}" for value in error["seed_effects"].split())
    percent = f"{round(100 * (1 - float(error['ratio'])), 2) + 0.0:+.2f}"  # no minus before zero
    return [step.words, gain(error), percent, seeds, area(step), gain(edited),
            f"{error['clips']}; [{step.study}]({step.study}/README.md)"]  # fmt: skip


def table() -> str:
    lines = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    for group, steps in GROUPS.items():
        lines.append(f"| **{group}** |" + " |" * (len(HEAD) - 1))
        lines += [f"| {' | '.join(cells(step))} |" for step in steps]
    return "\n".join(lines)


def renewed(page: str) -> str:
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--page", type=Path, help="a page with the two marks, whose table is made again; else: print it"
    )
    page = parser.parse_args(words).page
    if page is None:
        print(table())
    else:
        write_text(page, renewed(page.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What explains the gain over Auto-RGN, step by step, with intervals and seeds: over all studies, or in one.

    python benchmarks/explain_table.py --page docs/results/README.md
    python benchmarks/explain_table.py --page docs/results/nano_fresh/README.md

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
WHAT, ERROR, PERCENT, SEEDS = "what is added", "Future-frame L1: gain", "%", "by seed (17, 29, 43)"
AGENTS, AREA, EDITED = "where the teacher sees agents", "Masking AUC: gain", "Intervention L1: gain"
PAGE = "test clips; page"


class Step(NamedTuple):
    words: str
    study: str
    backbone: str
    to: str
    beside: str


def fresh(words: str, to: str, beside: str) -> Step:
    return Step(words, "nano_fresh", "nano", to, beside)


Groups = dict[str, tuple[Step, ...]]

ALL_STUDIES: Groups = {
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
    "The same on streets of another seed, 500 updates": (
        fresh("FactorJEPA's stages and factor views alone", "auto_rgn_views", "auto_rgn"),
        fresh("to that, late states and targets into the tokens, through a dense head", "mono_direct_late_chosen@fast",
              "auto_rgn_views"),
        fresh("channels instead of that head", "factorjepa_chosen", "mono_direct_late_chosen@fast"),
        fresh("to stages and views, a wide branch that is shown nothing", "auto_rgn_views@blind", "auto_rgn_views"),
        fresh("to that, the look back itself", "auto_rgn_views@look", "auto_rgn_views@blind"),
        fresh("to that, agents, pairs and targets through a dense head (5 % more parameters)",
              "mono_direct_late_chosen@look_wide", "auto_rgn_views@look"),
        fresh("channels instead of that head (3 % more)", "factorjepa_chosen@look_wide",
              "mono_direct_late_chosen@look_wide"),
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


NANO_FRESH: Groups = {
    "A look back, from Auto-RGN + views": (
        fresh("a wide branch that is shown nothing (`@blind`; 23 % more parameters)", "auto_rgn_views@blind",
              "auto_rgn_views"),
        fresh("to that, the look back itself (`@look`)", "auto_rgn_views@look", "auto_rgn_views@blind"),
    ),
    "Agents beside it, at as many parameters": (
        fresh("agents, pairs and targets through a dense head into the tokens (`@look`)",
              "mono_direct_late_chosen@look", "auto_rgn_views@look"),
        fresh("the same in channels (FactorJEPA `@look`)", "factorjepa_chosen@look", "auto_rgn_views@look"),
        fresh("channels over the dense head", "factorjepa_chosen@look", "mono_direct_late_chosen@look"),
    ),
    "Agents beside a look back that stays as wide": (
        fresh("through a dense head (`@look_wide`; 5 % more parameters)", "mono_direct_late_chosen@look_wide",
              "auto_rgn_views@look"),
        fresh("in channels (FactorJEPA `@look_wide`; 8 % more)", "factorjepa_chosen@look_wide", "auto_rgn_views@look"),
        fresh("channels over the dense head", "factorjepa_chosen@look_wide", "mono_direct_late_chosen@look_wide"),
    ),
    "Channels or a dense head, no look back; Auto-RGN's blocks": (
        fresh("FactorJEPA over a dense head that writes into the queries", "factorjepa_chosen",
              "mono_matched_late_chosen"),
        fresh("over one that writes into the tokens, branches at a quarter of FactorJEPA's rate", "factorjepa_chosen",
              "mono_direct_late_chosen"),
        fresh("over the same, branches at FactorJEPA's rate (`@fast`)", "factorjepa_chosen",
              "mono_direct_late_chosen@fast"),
        fresh("over Auto-RGN with stages and views", "factorjepa_chosen", "auto_rgn_views"),
        fresh("that dense head (`@fast`) over Auto-RGN with stages and views", "mono_direct_late_chosen@fast",
              "auto_rgn_views"),
        fresh("FactorJEPA over Auto-RGN", "factorjepa_chosen", "auto_rgn"),
        fresh("stages and views alone", "auto_rgn_views", "auto_rgn"),
    ),
    "The paper's form (top blocks), branches of all at one rate": (
        fresh("FactorJEPA over Auto-RGN (prespecified)", "factorjepa", "auto_rgn"),
        fresh("FactorJEPA over a dense head that writes into the tokens", "factorjepa", "mono_direct_late"),
        fresh("over one that writes into the queries (its pairs died)", "factorjepa", "mono_matched_late"),
        fresh("channels over a dense head into queries, states early and late (its pairs died)", "factorjepa_both",
              "mono_matched_both"),
        fresh("states through a dense head, early instead of late (14 % more; pairs of both died)", "mono_states_early",
              "mono_states_late"),
        fresh("targets, stages and views without states, over nothing of it", "mono_supervised", "mono_top"),
        fresh("DI+: stage and views of interactions doubled", "factorjepa_di", "factorjepa"),
        fresh("INT: interventions in training", "factorjepa_int", "factorjepa"),
        fresh("agents that move by state and pairs (5 % more parameters)", "agent_motion", "factorjepa"),
        fresh("and are told where they will be", "future_places", "factorjepa"),
    ),
    "The same, Auto-RGN's blocks": (
        fresh("agents that move by state and pairs (5 % more parameters)", "agent_motion_chosen", "factorjepa_chosen"),
        fresh("and are told where they will be", "future_places_chosen", "factorjepa_chosen"),
        fresh("pairs, through a dense head (13 % more parameters)", "mono_states_chosen", "mono_agents_chosen"),
        fresh("the interaction channel (states early and late; 12 % more parameters)", "factorjepa_both_chosen",
              "no_interaction_path_both_chosen"),
        fresh("stages and factor views (states early and late)", "factorjepa_both_chosen", "no_curriculum_both_chosen"),
    ),
    "Settings": (
        fresh("no priors of gates and edges (`@no_priors`)", "factorjepa_chosen@no_priors", "factorjepa_chosen"),
        fresh("the paper's mask policies (`@blocks`): FactorJEPA", "factorjepa_chosen@blocks", "factorjepa_chosen"),
        fresh("the same: Auto-RGN + views", "auto_rgn_views@blocks", "auto_rgn_views"),
        fresh("under these, FactorJEPA over Auto-RGN + views", "factorjepa_chosen@blocks", "auto_rgn_views@blocks"),
    ),
}  # fmt: skip

TABLES: dict[str, tuple[Groups, tuple[str, ...]]] = {
    "README.md": (ALL_STUDIES, (WHAT, ERROR, PERCENT, SEEDS, AREA, EDITED, PAGE)),
    "nano_fresh/README.md": (NANO_FRESH, (WHAT, ERROR, PERCENT, SEEDS, AGENTS, EDITED)),
}


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


def cell(step: Step, head: str) -> str:
    error = found(step, "future_l1")
    if head == WHAT:
        return step.words
    if head == PERCENT:
        return f"{round(100 * (1 - float(error['ratio'])), 2) + 0.0:+.2f}"  # no minus before zero
    if head == SEEDS:
        return " ".join(f"{float(value):+.4f}" for value in error["seed_effects"].split())
    if head == AREA:
        return area(step)
    if head == PAGE:
        return f"{error['clips']}; [{step.study}]({step.study}/README.md)"
    diagnostics = {ERROR: "future_l1", AGENTS: "future_l1/teacher_agents", EDITED: "intervention_l1"}
    return gain(found(step, diagnostics[head]))


def table(groups: Groups, heads: tuple[str, ...]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for group, steps in groups.items():
        lines.append(f"| **{group}** |" + " |" * (len(heads) - 1))
        lines += [f"| {' | '.join(cell(step, head) for head in heads)} |" for step in steps]
    return "\n".join(lines)


def renewed(page: str, name: str) -> str:
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table(*TABLES[name])}\n\n{END}{rest.split(END)[1]}"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, required=True, help="a page with the two marks, whose table is made again")
    page = parser.parse_args(words).page
    name = next((one for one in TABLES if page.resolve() == (RESULTS / one).resolve()), None)
    if name is None:
        parser.error(f"{page}: has no such table; pages: {', '.join(f'docs/results/{one}' for one in TABLES)}")
    write_text(page, renewed(page.read_text(encoding="utf-8"), name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

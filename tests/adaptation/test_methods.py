"""Methods as values: stages, scopes, budgets, adapters, block choice, interpolation."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from factorjepa.adaptation import METHODS, Stage, known, method_named
from factorjepa.adaptation.adapters import inject
from factorjepa.adaptation.autorgn import choose_blocks, relative_gradient_norms
from factorjepa.adaptation.budget import TOLERANCE, budgets, levelled, matching_rank
from factorjepa.adaptation.factor import DI_PLUS, FACTORJEPA
from factorjepa.adaptation.prepare import Scope, count_trainable, outline, parameter_roles, set_trainable
from factorjepa.adaptation.wise import interpolate
from factorjepa.backbones import build
from factorjepa.cli import app
from factorjepa.config import resolve
from factorjepa.errors import TrainingError
from factorjepa.study import StudySettings
from factorjepa.training.settings import PRESET_OF, TrainSettings

SMALL = {"depth": 4, "taps": (0, 1, 2, 3), "predictor_depth": 2}


def test_the_paper_s_methods_and_controls_are_there() -> None:
    wanted = {
        "frozen", "full", "continual", "lpft", "lora", "dora", "auto_rgn", "wise_0.3", "wise_0.5", "wise_0.7",
        "factorjepa_raw", "factorjepa", "factorjepa_di", "factorjepa_int", "mono_supervised", "mono_states_late",
        "mono_states_early", "mono_states_both", "no_factor_loss", "no_visibility_loss", "no_separation_loss",
        "no_sparsity_loss", "no_visibility_path", "no_interaction_path", "no_reliability", "misaligned_targets",
        "shuffled_targets", "half_ranks", "double_ranks", "residual_path",
    }  # fmt: skip
    assert wanted <= METHODS.keys()


def test_a_misspelt_method_names_the_nearest() -> None:
    with pytest.raises(TrainingError, match="did you mean 'factorjepa_raw'"):
        method_named("factorjepa_row")


def test_raw_reads_no_target_and_full_reads_all() -> None:
    assert not METHODS["factorjepa_raw"].reads_targets
    assert METHODS["factorjepa_raw"].reads_states
    assert METHODS["factorjepa"].reads_targets
    assert not METHODS["auto_rgn"].reads_packets
    assert not METHODS["slots"].reads_states


def test_stages_follow_one_another_and_fill_the_run() -> None:
    names = [FACTORJEPA.stage_at(step, 100)[1].name for step in range(100)]
    assert list(dict.fromkeys(names)) == ["head", "layout", "agents", "interactions"]
    assert [names.count(stage.name) for stage in FACTORJEPA.stages] == [10, 30, 30, 30]


def test_di_plus_doubles_the_interaction_stage_and_its_views() -> None:
    before, after = FACTORJEPA.stages[-1], DI_PLUS.stages[-1]
    assert after.share == pytest.approx(2 * before.share)
    assert dict(after.views)["interactions"] == pytest.approx(2 * dict(before.views)["interactions"])
    assert sum(stage.share for stage in DI_PLUS.stages) == pytest.approx(1.0)


def test_stages_that_do_not_fill_the_run_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"add up to 0\.5"):
        dataclasses.replace(FACTORJEPA, stages=(Stage("half", 0.5),))


@pytest.mark.parametrize(("name", "blocks"), [("auto_rgn", {1, 3}), ("factorjepa", {2, 3}), ("full", {0, 1, 2, 3})])
def test_exactly_the_named_blocks_train(name: str, blocks: set[int]) -> None:
    backbone, method = build("nano", **SMALL), METHODS[name]
    predictor = outline(backbone.spec, method)
    set_trainable(backbone.encoder, predictor, method, method.stages[-1], Scope(blocks=2, chosen=(1, 3)))
    training = {
        n for n, block in enumerate(backbone.encoder.blocks) if all(p.requires_grad for p in block.parameters())
    }
    still = {
        n for n, block in enumerate(backbone.encoder.blocks) if not any(p.requires_grad for p in block.parameters())
    }
    assert (training, still) == (blocks, set(range(4)) - blocks)


def test_the_head_only_stage_trains_no_encoder_block() -> None:
    backbone = build("nano", **SMALL)
    predictor = outline(backbone.spec, FACTORJEPA)
    set_trainable(backbone.encoder, predictor, FACTORJEPA, FACTORJEPA.stages[0], Scope(blocks=2))
    assert not any(p.requires_grad for p in backbone.encoder.parameters())
    assert all(p.requires_grad for p in predictor.parameters())


def test_rates_and_decay_are_those_of_the_table() -> None:
    backbone = build("nano", **SMALL)
    predictor = outline(backbone.spec, FACTORJEPA)
    set_trainable(backbone.encoder, predictor, FACTORJEPA, FACTORJEPA.stages[-1], Scope(blocks=1))
    roles = {name: role for name, _, role in parameter_roles(backbone.encoder, predictor)}
    assert {role["rate"] for name, role in roles.items() if name.startswith("encoder.")} == {0.1}
    dictionaries = [role for name, role in roles.items() if name.endswith(".directions")]
    assert len(dictionaries) == 3
    assert all(role == {"rate": 0.3, "decays": False} for role in dictionaries)


@pytest.mark.parametrize("name", ["factorjepa_both", "mono_states_both", "auto_rgn"])
def test_branches_that_read_agents_may_learn_at_a_rate_of_their_own(name: str) -> None:
    backbone, method = build("nano", **SMALL), METHODS[name]
    predictor = outline(backbone.spec, method)
    set_trainable(backbone.encoder, predictor, method, method.stages[-1], Scope(blocks=1, chosen=(0,)))
    usual, faster = (
        {row[0]: row[2]["rate"] for row in parameter_roles(backbone.encoder, predictor, settings.rates)}
        for settings in (TrainSettings(data="-"), TrainSettings(data="-", branch_rate=4))
    )
    assert usual.keys() == faster.keys()
    changed = {key.split(".")[1] for key in usual if usual[key] != faster[key]}
    assert all(faster[key] == 4 * usual[key] for key in usual if key.split(".")[1] in changed)
    read = {"factorjepa_both": {"reader", "early", "agents", "interactions"},
            "mono_states_both": {"reader", "early", "late"}, "auto_rgn": set()}  # fmt: skip
    assert changed == read[name]
    assert METHODS[name].idle_settings == (set() if changed else {"branch_rate", "gate_rate"})


def test_gates_and_edges_may_learn_slower_than_what_the_branches_say() -> None:
    backbone, method = build("nano", **SMALL), METHODS["factorjepa_both"]
    predictor = outline(backbone.spec, method)
    set_trainable(backbone.encoder, predictor, method, method.stages[-1], Scope(blocks=1, chosen=(0,)))
    rates = TrainSettings(data="-", branch_rate=4, gate_rate=0.5).rates
    found = {row[0]: row[2]["rate"] for row in parameter_roles(backbone.encoder, predictor, rates)}
    assert {found[f"predictor.{name}.weight"] for name in ("agents.g_V.first", "early.pairs.g_W.last")} == {0.5}
    assert {found[f"predictor.{name}.weight"] for name in ("agents.g_A.first", "interactions.pairs.g_I.last")} == {4.0}
    assert METHODS["slots"].idle_settings == set()  # it has branches, and finds its agents itself


@pytest.mark.parametrize("arch", PRESET_OF)
def test_matched_methods_lie_within_the_budget(arch: str) -> None:
    scope = resolve(TrainSettings, PRESET_OF[arch], data="-").scope
    for method in (method for method in METHODS.values() if method.matched):
        (row,) = budgets(arch, scope, [method], count_trainable(arch, METHODS[method.level_with], scope))
        assert abs(row.deviation) <= TOLERANCE, f"{row.method.name}: {row.deviation:+.1%}, {row.advice}"


@pytest.mark.parametrize("arch", PRESET_OF)
def test_matched_methods_lie_within_the_budget_of_their_preset(arch: str) -> None:
    settings = resolve(TrainSettings, PRESET_OF[arch], data="-")
    matched = [settings.of_method(name) for name, method in METHODS.items() if method.matched]
    rows = [row for own in matched for row in budgets(arch, own.scope, [own.resolved_method()], own.budget(arch))]
    assert not [row.method.name for row in rows if not row.within]


@pytest.mark.parametrize(
    "name",
    [
        "mono_states_chosen",
        "mono_matched_chosen",
        "mono_agents_chosen",
        "mono_states_both",
        "mono_states_late_chosen",
        "mono_matched_late_chosen",
    ],
)
def test_a_control_has_the_parameters_of_the_factorjepa_beside_it(name: str) -> None:
    settings = resolve(TrainSettings, "nano", data="-", method=name)
    beside = settings.of_method(METHODS[name].level_with)
    assert settings.budget("nano") == count_trainable("nano", beside.resolved_method(), beside.scope)
    own = levelled("nano", settings.resolved_method(), settings.scope, settings.budget("nano")).predictor
    assert own.hidden >= METHODS["factorjepa_both"].predictor.hidden  # its branches are no narrower


def test_a_method_outside_the_budget_names_the_rank_to_change() -> None:
    arch, scope = "vjepa2_1_vit_giant_384", Scope(blocks=1, rank=64)
    (row,) = budgets(arch, scope, [METHODS["lora"]], count_trainable(arch, METHODS["factorjepa"], scope))
    assert not row.within
    assert row.advice == "set lora_rank: 71 (it is 64)"
    scope = Scope(blocks=1, rank=matching_rank("vjepa2_1_vit_giant_384", METHODS["lora"], Scope(blocks=1), row.budget))
    assert abs(count_trainable("vjepa2_1_vit_giant_384", METHODS["lora"], scope) / row.budget - 1) < 0.01


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_adapters_start_as_nothing_and_train_alone(kind: str) -> None:
    backbone = build("nano", **SMALL)
    video = torch.randn(1, 3, 4, 32, 32)
    before = backbone.encoder(video)
    inject(backbone.encoder, kind, rank=4, alpha=8, dropout=0.0)  # type: ignore[arg-type]
    torch.testing.assert_close(backbone.encoder(video), before, atol=1e-5, rtol=1e-5)
    names = [name for name, p in backbone.encoder.named_parameters() if p.requires_grad]
    assert names
    assert all("lora_" in name for name in names)
    adapted = {name.split(".lora_")[0].split("blocks.")[1].partition(".")[2] for name in names}
    assert adapted == {"attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"}


def test_the_probe_finds_the_block_whose_weights_matter_most() -> None:
    encoder = build("nano", **SMALL).encoder
    with torch.no_grad():
        for parameter in encoder.blocks[2].parameters():
            parameter.mul_(0.05)  # small weights with the usual gradients: the largest relative norm
    video = torch.randn(1, 3, 4, 32, 32)
    norms = relative_gradient_norms(encoder, [lambda: encoder(video).square().mean()])
    assert choose_blocks(norms, 1) == (2,)
    assert all(p.grad is None for p in encoder.parameters())
    with pytest.raises(TrainingError, match="cannot choose 5 of 4"):
        choose_blocks(norms, 5)


def test_interpolation_refuses_other_encoders() -> None:
    start, end = {"a": torch.zeros(2)}, {"a": torch.ones(2)}
    assert interpolate(start, end, 0.3)["a"].tolist() == pytest.approx([0.3, 0.3])
    with pytest.raises(TrainingError, match="differ in b"):
        interpolate(start, {**end, "b": torch.ones(1)}, 0.3)


def test_the_verbs_list_methods_and_count_budgets() -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["methods"], env={"COLUMNS": "200"})
    assert listed.exit_code == 0
    ablations = {name for name, method in METHODS.items() if method.family == "ablation"}
    first = {line.split()[0] for line in listed.output.splitlines() if line.strip()}
    assert first & METHODS.keys() == METHODS.keys() - ablations
    assert f"{len(ablations)} ablations of these: factorjepa methods ablation" in listed.output
    others = runner.invoke(app, ["methods", "ablation"], env={"COLUMNS": "200"})
    assert all(name in others.output for name in ablations)
    some = runner.invoke(app, ["methods", "auto_rgn", "reference"], env={"COLUMNS": "200"})
    references = {name for name, method in METHODS.items() if method.family == "reference"}
    first = {line.split()[0] for line in some.output.splitlines() if line.strip()}
    assert first & METHODS.keys() == references | {"auto_rgn", "auto_rgn_views", "auto_rgn_int", "auto_rgn_look"}
    none = runner.invoke(app, ["methods", "nothing_like_it"], env={"COLUMNS": "200"})
    assert none.exit_code == 1
    assert "families: reference, generic" in str(none.exception)
    counted = runner.invoke(app, ["budget"], env={"COLUMNS": "200"})
    assert counted.exit_code == 0, counted.output
    outside = runner.invoke(app, ["budget", "--arch", "vjepa2_1_vit_large_384"], env={"COLUMNS": "200"})
    assert outside.exit_code == 1
    assert "lora_rank" in outside.output


def test_a_preset_tunes_terms_and_adds_none() -> None:
    raw = resolve(TrainSettings, "nano", data="-", method="factorjepa_raw").resolved_method()
    assert raw.losses.factor == 0.0
    assert resolve(TrainSettings, "nano", data="-", method="factorjepa").resolved_method().losses.factor == 0.2
    with pytest.raises(TrainingError, match="no term 'factr'"):
        resolve(TrainSettings, "nano", ["losses.factr=1"], data="-").resolved_method()
    with pytest.raises(TrainingError, match="injektion"):
        resolve(TrainSettings, "nano", ["predictor.injektion=early"], data="-").resolved_method()


def test_slots_look_at_the_runs_context() -> None:
    run = resolve(TrainSettings, "nano", ["context=8"], data="-", method="slots")
    assert run.resolved_method().predictor.context_frames == 8
    other = resolve(TrainSettings, "nano", ["context=8", "predictor.context_frames=12"], data="-", method="slots")
    with pytest.raises(TrainingError, match="the run's context has 8 frames"):
        other.resolved_method()


@pytest.mark.parametrize("preset", PRESET_OF.values())
def test_under_every_preset_all_methods_are_different_runs(preset: str) -> None:
    seen: dict[str, str] = {}
    for name in METHODS:
        method = resolve(TrainSettings, preset, data="-", method=name).resolved_method()
        what = repr(
            dataclasses.replace(method, name="", title="", why="", family="reference", matched=False, loss_scale=())
        )
        assert what not in seen, f"{name} is {seen.get(what)} under {preset}"
        seen[what] = name


def test_coefficients_are_numbers_and_scaled_ones_stay_scaled() -> None:
    settings = resolve(TrainSettings, "nano", ["losses.factor=1e-3"], data="-", method="half_factor")
    assert settings.resolved_method().losses.factor == pytest.approx(0.5e-3)


def test_the_budget_is_that_of_factorjepa_as_the_settings_make_it() -> None:
    settings = resolve(TrainSettings, "nano", data="-")
    wide = resolve(TrainSettings, "nano", ["predictor.ranks=[256,96,64]"], data="-")
    assert settings.budget("nano") == count_trainable("nano", settings.resolved_method(), settings.scope)
    assert wide.budget("nano") - settings.budget("nano") == 128 * (128 + 1 + 192 + 256)


def test_views_alone_are_a_control_of_auto_rgn() -> None:
    viewed, plain = METHODS["auto_rgn_views"], METHODS["auto_rgn"]
    assert viewed.stages == METHODS["factorjepa"].stages != plain.stages
    told = {"name", "title", "family", "why", "stages"}
    assert all(
        getattr(viewed, f.name) == getattr(plain, f.name) for f in dataclasses.fields(plain) if f.name not in told
    )
    assert viewed.reads_packets
    assert not viewed.reads_states
    assert not viewed.reads_targets


def test_the_look_back_by_name_is_the_one_that_the_study_measured() -> None:
    study = resolve(StudySettings, "chosen", ["methods=[auto_rgn_views@look]"])
    settings = study.jobs(Path("data"), Path("runs"))[0].settings
    spec, scope = "nano", settings.scope
    measured = levelled(spec, settings.resolved_method(), scope, settings.budget(spec))
    alone = resolve(TrainSettings, "nano", data="-", method="auto_rgn_look")
    named = levelled(spec, alone.resolved_method(), alone.scope, alone.budget(spec))
    told = {"name", "title", "why", "matched"}
    assert named.predictor.recalled
    assert {f.name for f in dataclasses.fields(named) if getattr(named, f.name) != getattr(measured, f.name)} == told
    assert count_trainable(spec, named, alone.scope) == count_trainable(spec, measured, scope) == 3_292_890


class TestVariants:
    def test_a_variant_is_its_method_under_another_name(self) -> None:
        variant = method_named("auto_rgn@long")
        same = dataclasses.replace(variant, name="auto_rgn", title=METHODS["auto_rgn"].title)
        assert (variant.title, same) == ("Auto-RGN @long", METHODS["auto_rgn"])
        assert (
            resolve(TrainSettings, "nano", data="-", method="auto_rgn@long").resolved_method().name == "auto_rgn@long"
        )

    @pytest.mark.parametrize("name", ["auto_rgn@", "auto_rgn@../x", "auto_rgn@a@b", "auto_rgn@a b", "auto_rgn@.x"])
    def test_a_word_that_is_no_file_name_is_refused(self, name: str) -> None:
        with pytest.raises(TrainingError, match="after @ comes a word"):
            method_named(name)

    def test_a_misspelt_method_of_a_variant_names_the_nearest(self) -> None:
        with pytest.raises(TrainingError, match="did you mean 'auto_rgn'"):
            method_named("auto_rng@long")

    def test_scores_may_tell_of_methods_that_are_not_here(self) -> None:
        assert known("of_another_version") is None
        assert known("frozen") is METHODS["frozen"]


@pytest.mark.parametrize("name", ["frozen", "lora", "dora"])
def test_a_new_branch_that_would_never_train_is_refused(name: str) -> None:
    with pytest.raises(TrainingError, match="recalled is a new branch"):
        resolve(TrainSettings, "nano", ["predictor.recalled=true"], data="-", method=name).resolved_method()


def test_the_released_predictor_has_no_options() -> None:
    with pytest.raises(TrainingError, match="keeps V-JEPA's own predictor"):
        resolve(TrainSettings, "nano", ["predictor.recalled=true"], data="-", method="continual").resolved_method()

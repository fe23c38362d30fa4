"""Configuration is strict, and says everything that is wrong at once."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from factorjepa.config import Settings, dump, preset_folder, preset_names, preset_path, resolve
from factorjepa.corpus.simulated import SimulationPlan
from factorjepa.errors import ConfigError
from factorjepa.rendering.settings import DecodeSettings
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.training.settings import TrainSettings
from factorjepa.world import WorldSettings

ROOT = Path(__file__).parents[1]


class Optimiser(Settings):
    learning_rate: float = Field(default=1e-3, gt=0)
    momentum: float = 0.9


class Stage(Settings):
    name: str
    optimiser: Optimiser | None = None


class Run(Settings):
    epochs: int = Field(default=1, ge=1)
    optimiser: Optimiser = Optimiser()
    stages: tuple[Stage, ...] = ()


def refusal(*overrides: str, model: type[Settings] = Run, preset: str | Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(model, preset, overrides)
    return str(caught.value)


class TestErrors:
    def test_are_listed_all_at_once(self) -> None:
        text = refusal("epochs=0", "optimiser.learning_rate=-1", "optimiser.momentum=much", "epoch=3")
        assert text.startswith("Found 4 errors")
        assert len(text.splitlines()) == 5
        for key in ("epochs:", "optimiser.learning_rate:", "optimiser.momentum:", "epoch:"):
            assert any(line.strip().startswith(key) for line in text.splitlines()), key
        assert "got 'much'" in text

    def test_one_error_is_singular(self) -> None:
        assert refusal("epochs=0").startswith("Found 1 error in")

    @pytest.mark.parametrize(
        ("override", "nearest"),
        [("epoch=1", "epochs"), ("optimizer.momentum=1", "optimiser"), ("optimiser.lerning_rate=1", "learning_rate")],
    )
    def test_name_the_nearest_valid_key(self, override: str, nearest: str) -> None:
        text = refusal(override)
        assert f"did you mean {nearest!r}?" in text
        assert "valid keys: " in text

    def test_name_the_keys_of_their_own_section(self) -> None:
        line = refusal("optimiser.epochs=1").splitlines()[1]
        assert line.strip().startswith("optimiser.epochs: unknown key")
        assert line.endswith("valid keys: learning_rate, momentum")

    def test_name_the_nearest_key_inside_lists_and_optional_sections(self) -> None:
        text = refusal("stages=[{name: a, optimiser: {momentun: 1}}, {nam: b}]")
        assert "stages.0.optimiser.momentun: unknown key (did you mean 'momentum'?)" in text
        assert "stages.1.nam: unknown key (did you mean 'name'?)" in text
        assert "stages.1.name: field required" in text

    def test_of_the_command_line_are_not_the_presets(self, tmp_path: Path) -> None:
        (tmp_path / "mine.yaml").write_text("epoch: 3\n")
        assert refusal("epochs=0").startswith("Found 1 error in what was given as key=value:")
        assert refusal("epochs=0", preset=tmp_path / "mine.yaml").startswith("Found 2 errors in " + str(tmp_path))

    def test_of_a_section_as_a_whole_are_the_presets_where_there_is_one(self, tmp_path: Path) -> None:
        (tmp_path / "short.yaml").write_text("{context: 3, frames: 2}")
        text = refusal("targets.width=64", model=TeacherSettings, preset=tmp_path / "short.yaml")
        assert text.startswith(f"Found 1 error in {tmp_path}")
        assert "a context of 3 leaves no future in a window of 2 frames" in text

    def test_of_a_section_as_a_whole_are_the_command_lines_where_there_is_no_preset(self) -> None:
        terms = ("pixel", "perceptual", "structure", "motion", "regularisation")
        text = refusal("data=here", *(f"losses.{term}=0" for term in terms), model=DecodeSettings)
        assert text.startswith("Found 1 error in what was given as key=value:")
        assert "every term of the objective is disabled" in text

    def test_a_key_one_level_off_says_where_it_belongs(self) -> None:
        class Study(Settings):
            inside: ClassVar[Mapping[str, Collection[str]]] = {"training": ["epochs"]}
            training: dict[str, int] = Field(default={})

        assert "epochs: unknown key (did you mean 'training.epochs'?)" in refusal("epochs=3", model=Study)
        assert "training: unknown key (did you mean 'epochs', without 'training'?)" in refusal("training.epochs=3")

    def test_valid_keys_are_told_once(self) -> None:
        assert refusal("zzz=1", "yyy=2").count("valid keys:") == 1

    def test_a_section_that_contradicts_itself_is_not_printed_whole(self) -> None:
        assert "(got" not in refusal("context=3", "frames=2", model=TeacherSettings)

    def test_a_key_like_nothing_lists_the_valid_ones_without_a_guess(self) -> None:
        text = refusal("zzz=1")
        assert "did you mean" not in text
        assert "valid keys: epochs, optimiser, stages" in text

    @pytest.mark.parametrize("override", ["epochs", "=3", " =3", ""])
    def test_an_override_without_key_or_value_shows_the_form(self, override: str) -> None:
        assert "key=value" in refusal(override)

    def test_the_form_of_an_override_is_shown_by_one_that_works(self) -> None:
        for model in (Run, WorldSettings, SimulationPlan):
            example = refusal("nonsense", model=model).rpartition("for example ")[2]
            assert example == {Run: "epochs=1", WorldSettings: "regime=dense"}.get(model, example)
            resolve(model, None, [example])

    def test_an_override_below_a_value(self) -> None:
        assert "'epochs' is a value, not a section" in refusal("epochs=2", "epochs.more=1")

    def test_an_override_with_broken_yaml(self) -> None:
        assert "not valid YAML" in refusal("epochs=[1")

    @given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz_", min_size=1).filter(lambda k: k not in Run.model_fields))
    def test_any_unknown_key_is_refused_by_name(self, key: str) -> None:
        assert f"  {key}: unknown key" in refusal(f"{key}=1")


class TestValues:
    def test_later_overrides_win_over_earlier_over_values_over_preset(self, tmp_path: Path) -> None:
        path = tmp_path / "run.yaml"
        path.write_text("epochs: 2\noptimiser: {momentum: 0.5, learning_rate: 0.1}\n")
        assert resolve(Run, path).epochs == 2
        assert resolve(Run, path, epochs=3).epochs == 3
        assert resolve(Run, path, epochs=None).epochs == 2
        resolved = resolve(Run, path, ["epochs=4", "epochs=5", "optimiser.momentum=0.7"], epochs=3)
        assert resolved.epochs == 5
        assert resolved.optimiser.momentum == 0.7
        assert resolved.optimiser.learning_rate == 0.1  # its neighbour in the section stays

    def test_one_weight_of_a_default_mapping_can_be_changed_like_one_of_a_preset(self) -> None:
        modes = resolve(WorldSettings, "dense", ["capture_modes.drive=0.9"]).capture_modes
        assert set(modes) == {"drive", "walk", "aerial"}
        assert modes["drive"] == 0.9

    def test_values_may_hold_equal_signs(self) -> None:
        assert resolve(Run, None, ["stages=[{name: a=b}]"]).stages[0].name == "a=b"

    def test_are_immutable(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            resolve(Run).epochs = 3  # type: ignore[misc]

    @given(st.integers(1, 99), st.floats(1e-6, 10.0))
    def test_dumped_and_read_back_are_the_same(self, epochs: int, rate: float) -> None:
        run = Run(epochs=epochs, optimiser=Optimiser(learning_rate=rate))
        assert Run.model_validate(yaml.safe_load(dump(run))) == run

    def test_a_simulation_plan_comes_back_from_its_own_yaml(self) -> None:
        plan = SimulationPlan(seed=3, clips=7, world=resolve(WorldSettings, "sparse", ["size=64"]))
        assert SimulationPlan.model_validate(yaml.safe_load(dump(plan))) == plan


class TestFiles:
    @pytest.mark.parametrize("text", ["- 1\n- 2\n", "just words", "3"])
    def test_a_file_that_is_no_mapping(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "x.yaml"
        path.write_text(text)
        assert "must be a mapping" in refusal(preset=path)

    def test_an_empty_file_means_the_defaults(self, tmp_path: Path) -> None:
        path = tmp_path / "x.yaml"
        path.write_text("# nothing yet\n")
        assert resolve(Run, path) == Run()

    def test_broken_missing_or_undecodable_files_are_named(self, tmp_path: Path) -> None:
        broken, binary = tmp_path / "broken.yaml", tmp_path / "binary.yaml"
        broken.write_text("a: [1")
        binary.write_bytes(b"\xff\xfe\x00")
        assert "broken.yaml, line 1: is not valid YAML" in (told := refusal(preset=broken))
        assert "restore or correct the file" in told
        assert "\n" not in told
        assert "binary.yaml: cannot be read" in refusal(preset=binary)
        assert "absent.yaml: cannot be read" in refusal(preset=tmp_path / "absent.yaml")
        (tmp_path / "folder.yaml").mkdir()
        assert "folder.yaml: cannot be read" in refusal(preset=tmp_path / "folder.yaml")

    def test_a_key_that_is_not_text(self, tmp_path: Path) -> None:
        path = tmp_path / "x.yaml"
        path.write_text("1: 2\n")
        assert "Found 1 error" in refusal(preset=path)

    def test_errors_of_a_file_name_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text("epochs: 0\n")
        assert "mine.yaml" in refusal(preset=path)


class TestPresets:
    def test_all_resolve_and_say_their_regime(self) -> None:
        assert preset_names(WorldSettings) == ["dense", "sparse"]
        for name in preset_names(WorldSettings):
            assert resolve(WorldSettings, name).regime == name

    def test_of_training_resolve(self) -> None:
        assert preset_names(TrainSettings) == ["nano", "small", "vitG_2b", "vitg_1b"]
        for name in preset_names(TrainSettings):
            settings = resolve(TrainSettings, name, data="-")
            assert settings.arch in ("nano", "small") or settings.batch * settings.accumulate == 128

    def test_every_line_has_a_comment_or_is_one(self) -> None:
        for name in (*preset_names(WorldSettings), *preset_names(TrainSettings)):
            first = preset_path(name, WorldSettings).read_text().splitlines()[0]
            assert first.startswith("# ")

    def test_a_missing_one_names_the_nearest(self) -> None:
        text = refusal(preset="spars", model=WorldSettings)
        assert "no preset 'spars' (did you mean 'sparse'?)" in text
        assert "presets: dense, sparse" in text

    def test_lie_where_a_checkout_and_a_wheel_have_them(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
        assert included == {"configs": "factorjepa/configs"}
        assert preset_folder().is_dir()
        assert preset_folder() in (ROOT / "configs", ROOT / "src" / "factorjepa" / "configs")


class TestWorld:
    """The world's own rules."""

    @pytest.mark.parametrize(
        ("override", "words"),
        [
            ("size=63", "even"),
            ("size=16", "greater than or equal to 32"),
            ("cities=[navapur, atlantis, mu]", "unknown cities atlantis, mu"),
            ("cities=[navapur, navapur]", "twice"),
            ("cities=[]", "at least 1"),
            ("capture_modes={drive: -1, walk: 2}", "finite and not negative"),
            ("capture_modes={drive: 0}", "at least one must be positive"),
            ("scene_types={moon: 1}", "scene_types.moon"),
            ("seconds=[5, 4]", "shortest <= longest"),
            ("seconds=[0.5, 4]", "1 <= shortest"),
            ("density=.nan", "density"),
            ("disorder=1.5", "less than or equal to 1"),
            ("regime=medium", "'dense' or 'sparse'"),
        ],
    )
    def test_refuses(self, override: str, words: str) -> None:
        assert words in refusal(override, model=WorldSettings)

    def test_names_the_nearest_key_inside_mappings(self) -> None:
        text = refusal("capture_modes.areal=1", "scene_types={markt: 1}", model=WorldSettings)
        assert "  capture_modes.areal: unknown key (did you mean 'aerial'?); valid keys: drive, walk, aerial" in text
        assert "  scene_types.markt: unknown key (did you mean 'market'?)" in text

    def test_names_the_key_of_wrong_durations(self) -> None:
        text = refusal("seconds=[9, 3]", model=WorldSettings)
        assert "  seconds: must satisfy 1 <= shortest <= longest <= 60 (got" in text

    @pytest.mark.parametrize("weight", [".inf", ".nan"])
    def test_refuses_weights_that_are_no_numbers(self, weight: str) -> None:
        assert "illumination" in refusal(f"illumination={{day: {weight}, night: 1}}", model=WorldSettings)

    def test_names_all_cities_when_one_is_unknown(self) -> None:
        assert "navapur, kesaripet" in refusal("cities=[pune]", model=WorldSettings)

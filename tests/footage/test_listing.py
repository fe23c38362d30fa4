"""Files, folders and tables; names and fields are not to be trusted."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factorjepa.corpus.checks import unsafe_path
from factorjepa.corpus.splits import Split
from factorjepa.errors import CorpusError
from factorjepa.footage.listing import (
    Listed,
    list_sources,
    read_table,
    refuse_nested,
    refuse_unknown,
    slug,
    write_template,
)
from factorjepa.footage.planning import Examination, plan_sources
from factorjepa.footage.settings import SplitSettings


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def table(folder: Path, *rows: str, head: str = "file,city,session,capture_mode") -> Path:
    path = folder / "table.csv"
    path.write_text("\n".join((head, *rows)) + "\n", encoding="utf-8")
    return path


class TestFolders:
    def test_city_session_and_mode_come_from_folders_where_they_are_there(self, tmp_path: Path) -> None:
        for name in (
            "Pune/s01/a.mp4",
            "Pune/s02/deep/b.mov",
            "Agra/c.mp4",
            "d.mp4",
            "Goa/drone/s9/e.mp4",
            "Goa/.x.mp4",
        ):
            touch(tmp_path / "footage" / name)
        found = {one.file: (one.city, one.session, one.capture_mode) for one in list_sources([tmp_path / "footage"])}
        assert found == {
            "Pune/s01/a.mp4": ("Pune", "s01", ""),
            "Pune/s02/deep/b.mov": ("Pune", "s02-deep", ""),
            "Agra/c.mp4": ("Agra", "all", ""),
            "d.mp4": ("footage", "all", ""),
            "Goa/drone/s9/e.mp4": ("Goa", "s9", "aerial"),
        }

    def test_a_capture_mode_is_asked_for_and_fills_gaps_only(self, tmp_path: Path) -> None:
        touch(tmp_path / "Goa" / "a.mp4")
        touch(tmp_path / "Goa" / "drone" / "b.mp4")
        with pytest.raises(
            CorpusError, match=r"capture_mode is not known of 1 file, first 'Goa/a\.mp4'.*--capture-mode"
        ):
            refuse_unknown(list_sources([tmp_path]))
        modes = [one.capture_mode for one in list_sources([tmp_path], "walk-through")]
        assert modes == ["walk", "aerial"]
        with pytest.raises(CorpusError, match="none of drive, walk, aerial"):
            list_sources([tmp_path], "swim")

    def test_a_link_that_leads_out_is_refused_and_not_followed(self, tmp_path: Path) -> None:
        touch(tmp_path / "private" / "diary.mp4")
        (tmp_path / "footage").mkdir()
        (tmp_path / "footage" / "nice.mp4").symlink_to(tmp_path / "private" / "diary.mp4")
        (one,) = list_sources([tmp_path / "footage"])
        assert "leads out" in one.refused

    def test_a_link_that_leads_to_itself_is_refused_and_the_others_are_listed(self, tmp_path: Path) -> None:
        touch(tmp_path / "Goa" / "a.mp4")
        (tmp_path / "Goa" / "self.mp4").symlink_to("self.mp4")
        found = {one.file: one.refused for one in list_sources([tmp_path], "walk")}
        assert found["Goa/a.mp4"] == ""
        assert found["Goa/self.mp4"]

    def test_the_same_file_twice_and_nothing_at_all(self, tmp_path: Path) -> None:
        touch(tmp_path / "Goa" / "a.mp4")
        with pytest.raises(CorpusError, match="more than once"):
            list_sources([tmp_path, tmp_path / "Goa" / "a.mp4"])
        with pytest.raises(CorpusError, match="no such file"):
            list_sources([tmp_path / "nowhere"])


class TestOut:
    @pytest.mark.parametrize(
        ("source", "out"), [("footage", "footage/corpus"), ("footage", "footage"), ("corpus/clips", "corpus"),
                            ("corpus/clips/a.mp4", "corpus"), ("footage", "elsewhere/../footage/new/corpus")],
    )  # fmt: skip
    def test_a_corpus_in_its_footage_or_footage_in_its_corpus_is_refused(
        self, tmp_path: Path, source: str, out: str
    ) -> None:
        touch(tmp_path / "footage" / "a.mp4")
        touch(tmp_path / "corpus" / "clips" / "a.mp4")
        with pytest.raises(CorpusError, match=r"lies in the .*; choose another --out"):
            refuse_nested([tmp_path / source], tmp_path / out)

    def test_a_corpus_beside_its_footage_or_below_its_table_is_not(self, tmp_path: Path) -> None:
        touch(tmp_path / "footage" / "a.mp4")
        refuse_nested([tmp_path / "footage", table(tmp_path)], tmp_path / "footage corpus")


class TestTables:
    def test_a_template_filled_in_is_a_table(self, tmp_path: Path) -> None:
        touch(tmp_path / "Pune" / "s01" / "a b.mp4")
        touch(tmp_path / "Pune" / "s01" / 'quote",comma.mp4')
        path = tmp_path / "table.csv"
        write_template(path, list_sources([tmp_path]))
        assert path.read_text().startswith("file,city,session,capture_mode,split,scene_type,")
        with pytest.raises(CorpusError, match="exists"):
            write_template(path, [])
        path.write_text(path.read_text().replace(",s01,,", ",s01,Drive,"))
        found = list_sources([path])
        assert [one.file for one in found] == ["Pune/s01/a b.mp4", 'Pune/s01/quote",comma.mp4']
        assert {one.capture_mode for one in found} == {"drive"}
        assert found[0].path == tmp_path / "Pune" / "s01" / "a b.mp4"

    @pytest.mark.parametrize("name", [b"a\xff.mp4", b"a\nb.mp4"])
    def test_a_name_that_no_table_can_hold_is_said(self, tmp_path: Path, name: bytes) -> None:
        touch(Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)))
        (one,) = list_sources([tmp_path])
        assert one.file.isprintable()
        with pytest.raises(CorpusError, match="rename it"):
            write_template(tmp_path / "table.csv", [one])
        assert not (tmp_path / "table.csv").exists()

    def test_other_columns_are_attributes_of_every_clip(self, tmp_path: Path) -> None:
        touch(tmp_path / "a.mp4")
        head = "file,City,session,capture mode,Road Context,split,weather"
        (one,) = read_table(table(tmp_path, "a.mp4,Pune,s1,walk_through,flyover,TEST,", head=head))
        assert (one.city, one.capture_mode, one.split) == ("Pune", "walk", "test")
        assert one.attributes == {"road_context": "flyover"}

    def test_everything_wrong_is_said_at_once(self, tmp_path: Path) -> None:
        touch(tmp_path / "a.mp4")
        rows = ("a.mp4,Pune,s1,swim", "../b.mp4,Pune,s1,walk", "/etc/passwd,Pune,s1,walk", "gone.mp4,Pune,s1,walk",
                "a.mp4,Pune,s1,walk,extra,field")  # fmt: skip
        with pytest.raises(CorpusError) as error:
            read_table(table(tmp_path, *rows))
        text = str(error.value)
        assert "Found 5 errors" in text
        for part in ("line 2: capture mode 'swim'", "line 3: path '../b.mp4' leaves", "line 4: path '/etc/passwd'",
                     "line 5: there is no file", "line 6: has more fields"):  # fmt: skip
            assert part in text

    @pytest.mark.parametrize(
        "head",
        [
            "file,city",
            *(f"file,city,session,capture_mode,{name}" for name in ("t_start", "Sharpness", "privacy_faces")),
        ],
    )
    def test_columns_that_are_missing_or_ours(self, tmp_path: Path, head: str) -> None:
        touch(tmp_path / "a.mp4")
        with pytest.raises(CorpusError, match="column"):
            read_table(table(tmp_path, "a.mp4,Pune,s1,walk,3"[: 14 if head == "file,city" else None], head=head))

    def test_several_problems_of_header_and_rows_are_said_together(self, tmp_path: Path) -> None:
        head = "file,city,City,session,capture_mode,split,sharpness"
        with pytest.raises(CorpusError) as error:
            read_table(
                table(tmp_path, "gone.mp4,Pune,Agra,s1,swim,some,3", "", ",Pune,Pune,s1,,,", ",,,,,,", head=head)
            )
        text = str(error.value)
        assert "Found 6 errors" in text
        for part in ("column 'city' is there 2 times ('city', 'City')", "column 'sharpness' has the name",
                     "line 2: there is no file 'gone.mp4'", "line 2: split 'some'", "line 2: capture mode 'swim'",
                     "line 4: names no file, but has city, session"):  # fmt: skip
            assert part in text

    def test_a_row_may_be_shorter_than_the_header(self, tmp_path: Path) -> None:
        touch(tmp_path / "a.mp4")
        (one,) = read_table(table(tmp_path, "a.mp4,Pune", ",,,"))
        assert (one.city, one.session, one.capture_mode) == ("Pune", "", "")
        with pytest.raises(CorpusError, match=r"session is not known of 1 file.*; capture_mode is not known of 1 file"):
            refuse_unknown([one])

    @pytest.mark.parametrize(("separator", "said"), [(";", "semicolons"), ("\t", "tabs")])
    def test_another_separator_is_named(self, tmp_path: Path, separator: str, said: str) -> None:
        path = table(tmp_path, "a.mp4,Pune,s1,walk")
        path.write_text(path.read_text().replace(",", separator))
        with pytest.raises(CorpusError, match=rf"separated by {said}, not by commas"):
            read_table(path)

    def test_bytes_that_are_no_table(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00garbage")
        with pytest.raises(CorpusError, match="cannot be read as CSV"):
            read_table(tmp_path / "t.csv")

    def test_letters_in_another_encoding_are_to_be_saved_as_utf_8(self, tmp_path: Path) -> None:
        path = table(tmp_path, "a.mp4,Zürich,s1,walk")
        path.write_bytes(path.read_text(encoding="utf-8").encode("cp1252"))
        with pytest.raises(CorpusError, match=r"not in UTF-8: save it again as UTF-8$"):
            read_table(path)


@given(st.text(max_size=300))
def test_whatever_a_name_is_its_slug_is_safe_in_paths_ids_and_archives(name: str) -> None:
    short = slug(name)
    assert short
    assert len(short.encode()) <= 80
    assert not set(short) & set("./\\#:; \0\n\"'")
    assert not unsafe_path(short)
    assert slug(short) == short


class TestPlans:
    def listed(self, *rows: tuple[str, str, str], **more: str) -> list[Listed]:
        return [Listed(Path(file), file, city, session, "walk", **more) for file, city, session in rows]  # type: ignore[arg-type]

    def examined(self, found: list[Listed], same: str = "") -> dict[str, Examination]:
        return {one.file: Examination(same or sha256(one.file.encode()).hexdigest(), 9.0) for one in found}

    def test_names_that_collide_stay_apart_and_equal_bytes_are_taken_once(self) -> None:
        found = self.listed(("x/a b.mp4", "Pune", "s1"), ("y/a_b.avi", "Pune", "s1"), ("z/c.mp4", "Pune", "s1"))
        plan = plan_sources(found, self.examined(found), SplitSettings())
        names = [one.source for one in plan.sources]
        assert len(set(names)) == 3
        assert sum(name.startswith("pune/s1/a-b-") for name in names) == 2
        once = plan_sources(found, self.examined(found, same="0" * 64), SplitSettings())
        assert len(once.sources) == 1
        assert {one.reason for one in once.refused} == {"same file"}

    def test_unreadable_files_do_not_take_a_split_from_the_others(self) -> None:
        found = self.listed(*((f"{k:02d}.mp4", "Pune", "s1") for k in range(20)))
        examined = self.examined(found)
        readable = plan_sources(found[:10], examined, SplitSettings())
        for one in found[10:]:
            examined[one.file] = Examination("", refused="audio only")
        plan = plan_sources(found, examined, SplitSettings())
        assert [one.split for one in plan.sources] == [one.split for one in readable.sources]
        assert {split: sum(one.split == split for one in plan.sources) for split in list(Split)[:3]} == {
            Split.TRAIN: 8, Split.VALIDATION: 1, Split.TEST: 1,
        }  # fmt: skip

    def test_files_too_short_for_a_clip_do_not_take_a_split_from_the_others(self) -> None:
        found = self.listed(*((f"{k:02d}.mp4", "Pune", f"s{k // 5}") for k in range(20)))
        examined = self.examined(found)
        for settings in (SplitSettings(), SplitSettings(by="session")):
            long = plan_sources(found[10:], examined, settings, min_seconds=6.0)
            short = {one.file: Examination(examined[one.file].sha256, 3.0) for one in found[:10]}
            plan = plan_sources(found, examined | short, settings, min_seconds=6.0)
            assert [one.split for one in plan.sources[10:]] == [one.split for one in long.sources]
            unknown = {file: Examination(one.sha256, 0.0) for file, one in examined.items()}
            splits = [one.split for one in plan_sources(found, unknown, settings, min_seconds=6.0).sources]
            assert splits == [one.split for one in plan_sources(found, examined, settings).sources]

    def test_newcomers_go_to_the_split_that_has_sources_and_no_clips(self) -> None:
        found = self.listed(*((f"{k:02d}.mp4", "Pune", "s1") for k in range(12)))
        examined = self.examined(found)
        begun = plan_sources(found[:10], examined, SplitSettings())
        (barren,) = (one.source for one in begun.sources if one.split == Split.VALIDATION)
        for made, expected in ((True, True), (False, False)):  # one that is not made yet may still give clips
            plan = plan_sources(found, examined, SplitSettings(), begun, {barren: made})
            assert plan.sources[:10] == begun.sources
            assert (Split.VALIDATION in {one.split for one in plan.sources[10:]}) == expected

    def test_sessions_stay_whole_where_asked(self) -> None:
        found = self.listed(*((f"{k:02d}.mp4", "Pune", f"s{k // 4}") for k in range(40)))
        plan = plan_sources(found, self.examined(found), SplitSettings(by="session"))
        for session in {one.session for one in plan.sources}:
            assert len({one.split for one in plan.sources if one.session == session}) == 1
        assert len({one.split for one in plan.sources}) == 3

    def test_what_the_table_says_of_one_source_holds_for_its_session_where_sessions_stay_whole(self) -> None:
        found = self.listed(*((f"{k}.mp4", "Pune", "s0") for k in range(6)))
        found[2] = Listed(Path("x"), "2.mp4", "Pune", "s0", "walk", "validation")
        plan = plan_sources(found, self.examined(found), SplitSettings(by="session"))
        assert {one.split for one in plan.sources} == {Split.VALIDATION}

    def test_the_table_decides_splits_and_an_audit_city_is_audit_altogether(self) -> None:
        fixed = self.listed(("a.mp4", "Pune", "s1"), split="test")
        free = self.listed(("b.mp4", "Pune", "s1"), ("c.mp4", "Agra", "s1"), ("d.mp4", "Agra", "s2"))
        found = [*fixed, *free]
        plan = plan_sources(found, self.examined(found), SplitSettings(audit_cities=("Agra",)))
        splits = {one.file: one.split for one in plan.sources}
        assert splits["a.mp4"] == Split.TEST
        assert splits["c.mp4"] == splits["d.mp4"] == Split.AUDIT
        with pytest.raises(CorpusError, match="is an audit city"):
            plan_sources(found, self.examined(found), SplitSettings(audit_cities=("Pune",)))
        with pytest.raises(CorpusError, match="no readable sources"):
            plan_sources(found, self.examined(found), SplitSettings(audit_cities=("Oslo",)))

    def test_two_spellings_of_one_city_are_refused(self) -> None:
        found = self.listed(("a.mp4", "New Delhi", "s1"), ("b.mp4", "new-delhi", "s1"))
        with pytest.raises(CorpusError, match="2 spellings"):
            plan_sources(found, self.examined(found), SplitSettings())

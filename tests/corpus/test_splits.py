"""Splits: whole sources, right shares overall and per stratum, no dependence on input order."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.corpus.balance import balanced_sequence
from factorjepa.corpus.splits import Source, Split, assign_splits, extend_splits
from factorjepa.errors import CorpusError

SHARES = {Split.TRAIN: 0.8, Split.VALIDATION: 0.1, Split.TEST: 0.1}
MODES = ("drive", "walk", "aerial")


@st.composite
def corpora(draw: st.DrawFn) -> list[Source]:
    """Sources of up to 8 cities; most strata hold a handful, as they do after a real collection."""
    sizes = draw(st.lists(st.tuples(*(st.integers(0, 9) for _ in MODES)), min_size=1, max_size=8))
    return [
        Source(f"city{city}/s{mode}/v{index}", f"city{city}", mode)
        for city, counts in enumerate(sizes)
        for mode, count in zip(MODES, counts, strict=True)
        for index in range(count)
    ]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any), st.integers(1, 300))
def test_every_prefix_of_a_balanced_sequence_is_proportional(weights: list[int], length: int) -> None:
    dealt = np.array(list(islice(balanced_sequence(weights), length)))
    share = np.array(weights) / sum(weights)
    for group, expected in enumerate(share):
        running = np.cumsum(dealt == group)
        assert np.all(np.abs(running - expected * np.arange(1, length + 1)) < 1)


@given(corpora(), st.integers(0, 2**31))
def test_overall_shares_are_within_one_source(sources: list[Source], seed: int) -> None:
    counts = Counter(assign_splits(sources, seed).values())
    for split, share in SHARES.items():
        assert abs(counts[split] - share * len(sources)) < 1


@pytest.mark.parametrize("count", range(6, 13))
def test_from_six_sources_on_no_split_with_a_share_is_empty(count: int) -> None:
    sources = [Source(f"v{k}", f"city{k % 3}", MODES[k % 2]) for k in range(count)]
    counts = Counter(assign_splits(sources, 0).values())
    assert set(counts) == set(SHARES)
    assert counts[Split.TRAIN] > count / 2


def test_the_only_source_stays_in_training() -> None:
    assert assign_splits([Source("v", "agra", "walk")], 0) == {"v": Split.TRAIN}


def test_a_split_without_a_share_stays_empty_however_few_sources_there_are() -> None:
    sources = [Source(f"v{k}", "agra", "walk") for k in range(7)]
    assert Split.TEST not in assign_splits(sources, 0, fractions=(0.9, 0.1, 0.0)).values()
    assert Split.VALIDATION in assign_splits(sources, 0, fractions=(0.9, 0.1, 0.0)).values()


@given(corpora(), st.integers(0, 2**31))
def test_each_city_and_each_stratum_is_within_two_sources(sources: list[Source], seed: int) -> None:
    splits = assign_splits(sources, seed)
    groups: dict[tuple[str, ...], list[Split]] = {}
    for source in sources:
        for key in ((source.city,), (source.city, source.capture_mode)):
            groups.setdefault(key, []).append(splits[source.source])
    for members in groups.values():
        for split, share in SHARES.items():
            assert abs(members.count(split) - share * len(members)) < 2


@given(corpora(), st.integers(0, 2**31), st.randoms(use_true_random=False))
def test_input_order_does_not_matter(sources: list[Source], seed: int, random: object) -> None:
    shuffled = list(sources)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign_splits(shuffled, seed) == assign_splits(sources, seed)


@given(corpora(), st.integers(0, 2**31))
def test_audit_cities_are_audit_altogether_and_nothing_else_is(sources: list[Source], seed: int) -> None:
    audit = sorted({source.city for source in sources})[:2]
    splits = assign_splits(sources, seed, audit_cities=audit)
    assert set(splits) == {source.source for source in sources}
    for source in sources:
        assert (splits[source.source] == Split.AUDIT) == (source.city in audit)


@settings(max_examples=20)
@given(st.integers(0, 2**31))
def test_strata_too_small_for_a_tenth_still_share_the_test_sources(seed: int) -> None:
    sources = [Source(f"{city}/{mode}/{i}", city, mode) for city in "abcdefgh" for mode in MODES for i in range(3)]
    counts = Counter(assign_splits(sources, seed).values())
    assert {counts[Split.VALIDATION], counts[Split.TEST]} <= {7, 8}


def test_the_seed_changes_who_is_held_out() -> None:
    sources = [Source(f"a/s/v{index}", "a", "walk") for index in range(40)]
    assert assign_splits(sources, 1) == assign_splits(sources, 1)
    assert assign_splits(sources, 1) != assign_splits(sources, 2)


def test_other_fractions() -> None:
    sources = [Source(f"a/s/v{index}", "a", "walk") for index in range(9)]
    third = 1 / 3
    assert Counter(assign_splits(sources, 0, fractions=(third, third, third)).values()) == dict.fromkeys(SHARES, 3)
    assert set(assign_splits(sources, 0, fractions=(1.0, 0.0, 0.0)).values()) == {Split.TRAIN}


@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.2), (1.1, -0.1, 0.0), (0.5, 0.5)])
def test_impossible_fractions_are_refused(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(CorpusError, match="add up to 1"):
        assign_splits([Source("a/s/v0", "a", "walk")], 0, fractions=fractions)


def test_a_repeated_source_is_refused() -> None:
    with pytest.raises(CorpusError, match="'a/s/v0' is listed more than once"):
        assign_splits([Source("a/s/v0", "a", "walk"), Source("a/s/v0", "b", "walk")], 0)


def test_an_unknown_audit_city_is_refused() -> None:
    with pytest.raises(CorpusError, match="audit city 'pune' has no sources; cities of the corpus: a"):
        assign_splits([Source("a/s/v0", "a", "walk")], 0, audit_cities=["pune"])


@given(corpora(), st.integers(0, 2**31), st.data())
def test_a_corpus_that_grew_is_within_two_sources_of_its_shares(
    sources: list[Source], seed: int, data: st.DataObject
) -> None:
    """However the sources came: a first lot dealt at once, the others joining in lots of any size."""
    coming = data.draw(st.permutations(sources))
    first = data.draw(st.integers(0, len(coming)))
    splits = assign_splits(coming[:first], seed)
    while len(splits) < len(coming):
        until = data.draw(st.integers(len(splits) + 1, len(coming)))
        joining = coming[len(splits) : until]
        known = {source: splits[source.source] for source in coming[: len(splits)]}
        added = extend_splits(known, joining, seed)
        assert added == extend_splits(known, joining[::-1], seed)
        assert set(added) == {source.source for source in joining}
        splits |= added
    strata: dict[tuple[str, ...], list[Split]] = {}
    for source in sources:
        for key in ((), (source.city, source.capture_mode)):
            strata.setdefault(key, []).append(splits[source.source])
    for members in strata.values():
        for split, share in SHARES.items():
            assert abs(members.count(split) - share * len(members)) < 2


def test_audit_sources_do_not_count_where_others_join() -> None:
    audited = {Source(f"a{k}", "Agra", "walk"): Split.AUDIT for k in range(20)}
    joining = [Source(f"p{k}", "Pune", "walk") for k in range(10)]
    assert Counter(extend_splits(audited, joining, 0).values()) == {
        Split.TRAIN: 8, Split.VALIDATION: 1, Split.TEST: 1,
    }  # fmt: skip


def test_a_source_that_is_there_already_cannot_join() -> None:
    with pytest.raises(CorpusError, match="listed more than once"):
        extend_splits({Source("a", "Agra", "walk"): Split.TRAIN}, [Source("a", "Agra", "walk")], 0)

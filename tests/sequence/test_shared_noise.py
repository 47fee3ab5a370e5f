"""Noise by position: the published generator bit by bit, the uniforms' definition in integers, and
winners on cells of noise.
"""

import itertools
import re

import numpy as np
import pytest

from otm.errors import OtmError
from otm.sequence import SharedNoise
from otm.sequence.shared_noise import NoiseRow, philox, winner_by_cells
from tests.contracts.alarms import alarms
from tests.paths import ROOT

MASK = 0xFFFFFFFF


def word_by_word(counter, key):
    """The generator in Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & MASK, (first >> 32) ^ c[3] ^ k[1], first & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return tuple(c)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # Random123, kat_vectors, philox4x32 10
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((MASK,) * 4, (MASK, MASK), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_generator_is_philox(counter, key, words):
    arrays = tuple(np.array(word, dtype=np.uint64) for word in counter)
    assert tuple(philox(arrays, key).tolist()) == words == word_by_word(counter, key)


@pytest.mark.parametrize(("seed", "position"), [(0, 0), (2**64 - 1, 3), (2**40 + 5, 2**33 + 1)])
def test_uniforms_are_what_the_page_defines(seed, position):
    found = SharedNoise(seed).uniforms(position, 5)
    for token, uniform in enumerate(found.tolist()):
        counter = token // 2, position & MASK, position >> 32, 0
        words = word_by_word(counter, (seed & MASK, seed >> 32))
        low, high = words[2 * (token % 2) :][:2]
        numerator = 2 * ((low + (high << 32)) >> 12) + 1
        assert uniform == numerator / 2**53  # exact: an odd number below 2⁵³
    assert SharedNoise(seed).uniforms(position, 3).tolist() == found[:3].tolist()


def test_the_page_s_vectors():
    page = (ROOT / "docs" / "howto" / "matching.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| (\d+) \| (\d+) \| \((.*?)\) \| ([0-9a-f ]+) \| (.*?), (.*?) \|", page)
    assert len(rows) == 3
    for seed, position, counter, words, *uniforms in rows:
        noise, place = SharedNoise(int(seed)), tuple(int(word) for word in counter.split(","))
        assert place[1:3] == (int(position) & MASK, int(position) >> 32)
        key = noise.seed & MASK, noise.seed >> 32
        assert [f"{word:08x}" for word in word_by_word(place, key)] == words.split()
        found = noise.uniforms(int(position), 2 * place[0] + 2)[2 * place[0] :]
        assert [value.hex() for value in found.tolist()] == uniforms


@pytest.mark.parametrize("mass", [[0.5, 0.3, 0.2], [1 - 1e-6, 1e-6, 0.0], [0.0, 1.0, 0.0]])
def test_winners_on_cells_make_the_target_s_law(mass):
    """The mean over all cells is q; a single cell agrees with noise that falls into it."""
    target, cells = np.array(mass), 3
    every = [np.array(cell) for cell in itertools.product(range(cells), repeat=3)]
    laws = [winner_by_cells(target, NoiseRow.of_cells(cell, cells, None)) for cell in every]
    np.testing.assert_allclose(np.mean(laws, axis=0), target, atol=1e-14)
    counts = np.zeros((cells,) * 3 + (3,))
    for seed in range(1_500):
        cell = NoiseRow.of(SharedNoise(seed).row(0, 3), cells).cell
        counts[(*cell, SharedNoise(seed).choose(target, 0))] += 1
    for found, law in zip(counts.reshape(-1, 3), laws, strict=True):
        assert not alarms(found, law, int(found.sum())).any()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *(
            (lambda seed=seed: SharedNoise(seed), "seed")
            for seed in (-1, 2**64, 0.5, True, None, "7")
        ),
        (lambda: SharedNoise(0).row(-1, 2), "position"),
        (lambda: SharedNoise(0).row(0, 0), "num_tokens"),
        (lambda: SharedNoise(0).choose([0.5, 0.6], 0), "sum to 1"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(OtmError, match=said):
        call()

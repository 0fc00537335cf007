import random
import re
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu import corpus_bleu
from sacrebleu.metrics import CHRF

import sentences
from seqmixer.errors import DataError
from seqmixer.rewards import BLEU, ROUGE2, chrf, sentence_bleu
from seqmixer.rewards.subwords import Merges, Style, detect, metric_on_whole_words, on_whole_words, whole_words
from seqmixer.types import BOS, EOS, PAD, UNK, Rollout

SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]
PIECES = {
    Style.BPE: [*SPECIALS, "a", "b", "ab", "bab", "a@@", "b@@", "ab@@", "ba@@", "@@", "abababab@@"],
    Style.SENTENCEPIECE: [*SPECIALS, "▁a", "▁b", "▁ab", "a", "b", "ab", "ba", "▁", "▁▁▁", "abababab"],
    Style.BYTES: [*SPECIALS, "Ġa", "Ġb", "Ġab", "a", "b", "ab", "ba", "Ġ", "ĠĠĠ", "abababab"],
}
MERGES = {style: Merges.of(pieces, style) for style, pieces in PIECES.items()}
WIDTH = 12
tensors = partial(sentences.tensors, width=WIDTH)


def text(sentence, style):
    """What the libraries that cut words do to undo it."""
    pieces = [PIECES[style][i] for i in sentence]
    if style is Style.BPE:
        return re.sub("(@@ )|(@@ ?$)", "", " ".join(pieces))
    return "".join(pieces).replace(style.value, " ").strip()


def sentence(smallest=4):
    return st.lists(st.integers(smallest, 13), max_size=WIDTH)


def examples(smallest=4):
    return st.lists(
        st.tuples(sentence(smallest), st.lists(sentence(smallest), min_size=1, max_size=3)), min_size=1, max_size=8
    )


@settings(max_examples=200, deadline=None, database=None)
@given(examples=examples(), style=st.sampled_from(Style))
def test_merged_words_are_equal_where_their_strings_are(examples, style):
    hypotheses, references = zip(*examples, strict=True)
    words, others = tensors(hypotheses, references)
    merged, merged_others = whole_words(words, others, MERGES[style])
    assert (merged.shape, merged_others.shape) == (words.shape, others.shape)
    for h, several, ids, other_ids in zip(hypotheses, references, merged.tolist(), merged_others.tolist(), strict=True):
        strings, found = [], []
        for sentence, row_ids in zip([h, *several], [ids, *other_ids], strict=False):
            split = text(sentence, style).split()
            end = [EOS] if len(sentence) < WIDTH else []
            assert row_ids[len(split) :] == (end + [PAD] * WIDTH)[: WIDTH - len(split)]
            strings += split
            found += row_ids[: len(split)]
        assert all(i > UNK for i in found)
        assert len(set(zip(strings, found, strict=True))) == len(set(strings)) == len(set(found))
        for missing in other_ids[len(several) :]:
            assert missing == [PAD] * WIDTH


@pytest.mark.parametrize("style", Style)
@pytest.mark.parametrize("count", [1, 3])
def test_bleu_of_pieces_is_sacrebleu_of_the_text(style, count):
    draw = random.Random(count)
    metric = metric_on_whole_words(BLEU, MERGES[style])
    for _ in range(10):
        references = [
            [[draw.randint(4, 13) for _ in range(draw.randint(4, 15))] for _ in range(count)] for _ in range(20)
        ]
        hypotheses = [[i if draw.random() < 0.9 else draw.randint(4, 13) for i in several[0]] for several in references]
        score = metric.corpus(metric.statistics(Rollout(*tensors(hypotheses, references, width=16)))).item()
        streams = [[text(several[i], style) for several in references] for i in range(count)]
        joined = [text(h, style) for h in hypotheses]
        expected = corpus_bleu(joined, streams, smooth_method="none", tokenize="none", force=True).score
        assert score == pytest.approx(expected, abs=1e-4)


def test_a_word_in_other_pieces_is_the_same_word():
    pieces = [*SPECIALS, "un@@", "believ@@", "able", "unbe@@", "lie@@", "vable", "is", "it", "that"]
    merges = Merges.of(pieces, Style.BPE)
    ids = {piece: i for i, piece in enumerate(pieces)}

    def encode(text):
        return [ids[piece] for piece in text.split()]

    words, references = tensors([encode("it is un@@ believ@@ able that")], [[encode("it is unbe@@ lie@@ vable that")]])
    metric = metric_on_whole_words(BLEU, merges)
    assert metric.corpus(metric.statistics(Rollout(words, references))).item() == pytest.approx(100)
    assert BLEU.corpus(BLEU.statistics(Rollout(words, references))).item() == 0
    assert on_whole_words(sentence_bleu, merges)(Rollout(words, references)).item() == pytest.approx(1)


def test_a_reward_sees_whole_words_and_all_else_but_the_number_of_given_pieces():
    words, references = tensors([[8, 4, 5]], [[[5, 8, 4]]])
    source, meta = torch.zeros(1, 3), [{"source": "x"}]
    seen = []
    reward = on_whole_words(lambda rollout: seen.append(rollout) or torch.zeros(1), MERGES[Style.BPE])
    reward(Rollout(words, references, start=2, source=source, meta=meta))
    (rollout,) = seen
    assert (rollout.start, rollout.source, rollout.meta) == (0, source, meta)
    merged, others = whole_words(words, references, MERGES[Style.BPE])
    assert torch.equal(rollout.words, merged)
    assert torch.equal(rollout.references, others)


@settings(max_examples=60, deadline=None, database=None)
@given(examples=examples(smallest=UNK), style=st.sampled_from(Style))
def test_a_word_with_an_unknown_piece_is_unknown(examples, style):
    hypotheses = [h for h, _ in examples]
    merged, _ = whole_words(*tensors(hypotheses, [[h] for h in hypotheses]), MERGES[style])
    for h, ids in zip(hypotheses, merged.tolist(), strict=True):
        known = [*PIECES[style][:UNK], "?", *PIECES[style][UNK + 1 :]]
        pieces = [known[i] for i in h]
        joined = (
            re.sub("(@@ )|(@@ ?$)", "", " ".join(pieces))
            if style is Style.BPE
            else "".join(pieces).replace(style.value, " ").strip()
        )
        expected = ["?" in word for word in joined.split()]
        assert [i == UNK for i in ids[: len(expected)]] == expected
        assert UNK not in ids[len(expected) :]


def test_words_may_be_as_long_as_the_sentence():
    merges = MERGES[Style.BPE]
    long = [13] * 20  # 160 characters in one word
    words = torch.tensor(
        [
            sentences.row([*long, 4], 22),
            sentences.row([*long, 5], 22),
            sentences.row([*long[:-1], 10, 11, 11, 9, 4], 22 + 2)[:22],
        ]
    )
    references = torch.tensor([[sentences.row([*long, 4], 22)]] * 3)
    merged, other = whole_words(words, references, merges)
    assert (merged[:, 1:2] == EOS).all(dim=1).tolist() == [True, True, False]  # the third was cropped
    assert (merged[:, 0] == other[:, 0, 0]).tolist() == [True, False, False]


def test_the_end_and_the_beginning_of_a_sentence_stay():
    merges = MERGES[Style.SENTENCEPIECE]
    words = torch.tensor([[BOS, 4, 7, EOS, UNK], [EOS, PAD, PAD, PAD, PAD], [11, 12, EOS, PAD, PAD], [PAD] * 5])
    merged, _ = whole_words(words, words.unsqueeze(1), merges)
    assert merged[0, 0] > UNK
    assert merged[0, 1:].tolist() == [EOS, PAD, PAD, PAD]
    assert merged[1].tolist() == merged[2].tolist() == [EOS, PAD, PAD, PAD, PAD]  # marks alone spell nothing
    assert merged[3].tolist() == [PAD] * 5


@pytest.mark.parametrize("style", Style)
def test_chrf_needs_only_the_characters_of_the_pieces(style):
    draw = random.Random(0)
    hypotheses, references = (
        [[draw.randint(4, 13) for _ in range(draw.randint(1, 9))] for _ in range(30)] for _ in "hr"
    )
    metric = chrf.chrf_metric(MERGES[style].characters)
    score = metric.corpus(metric.statistics(Rollout(*tensors(hypotheses, [[r] for r in references])))).item()
    joined, stream = ([text(s, style) for s in sentences] for sentences in (hypotheses, references))
    assert score == pytest.approx(CHRF().corpus_score(joined, [stream]).score, abs=1e-4)


@pytest.mark.parametrize(
    ("words", "style"),
    [
        (PIECES[Style.BPE], Style.BPE),
        (PIECES[Style.SENTENCEPIECE], Style.SENTENCEPIECE),
        ([*SPECIALS, "the", "cat"], None),
        (SPECIALS, None),
        ([*SPECIALS, *(f"w{i}" for i in range(200)), "@@", "a@@", "b@@"], Style.BPE),  # 3 of 203
        ([*SPECIALS, *(f"w{i}" for i in range(200)), "@@", "▁"], None),  # stray marks
        ([*SPECIALS, *(f"▁w{i}" for i in range(200)), *["@@"] * 5], Style.SENTENCEPIECE),
        (["@@", "▁a", "b@@", "c@@", "the", "cat"], None),  # the first four are no words
    ],
)
def test_marks_are_detected_in_the_vocabulary(words, style):
    assert detect(words) is style


@pytest.mark.parametrize("piece", ["▁of▁the", "a▁"])
def test_pieces_of_several_words_are_refused(piece):
    message = (
        f"piece {piece!r} has '▁' after its beginning, so it holds more than one word, which cannot be merged; train "
        "sentencepiece with split_by_whitespace=true and treat_whitespace_as_suffix=false"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Merges.of([*SPECIALS, "▁of", piece], Style.SENTENCEPIECE)


@pytest.mark.parametrize("style", Style)
def test_merging_asks_the_device_no_question(style):
    """The meta device holds no values: an `.item()`, or a tensor made elsewhere, raises there."""
    words = torch.ones(4, 6, dtype=torch.long, device="meta")
    references = torch.ones(4, 3, 5, dtype=torch.long, device="meta")
    result = on_whole_words(sentence_bleu, MERGES[style])(Rollout(words, references))
    assert (result.shape, result.device.type) == ((4,), "meta")
    rows = metric_on_whole_words(ROUGE2, MERGES[style]).statistics(Rollout(words, references))
    assert (rows.shape, rows.device.type) == ((4, 3), "meta")


def test_the_signature_says_that_pieces_were_merged():
    metric = metric_on_whole_words(BLEU, MERGES[Style.BPE])
    assert (metric.name, metric.signature) == ("bleu", f"{BLEU.signature}|pieces:merged")

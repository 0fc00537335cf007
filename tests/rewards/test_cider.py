import random
import re
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.cider.cider_scorer import CiderScorer, cook_refs, cook_test
from safetensors.torch import save_file

import sentences
from seqmixer.errors import DataError, RewardError
from seqmixer.rewards import cider
from seqmixer.rewards.cider import DocumentFrequencies, cider_metric
from seqmixer.rewards.metric import unk_as_word
from seqmixer.types import BOS, EOS, PAD, UNK, Rollout

WIDTH = 12
tensors = partial(sentences.tensors, width=WIDTH)
DOCUMENTS = [[[4, 5, 6, 7, 8], [4, 5, 9]], [[4, 6, 6, 7], [8, 8, 9, 4, 5]], [[10, 4, 5, 6], [7]]]


def coco(hypotheses, references, documents):
    """pycocoevalcap's scorer with the document frequencies and the number of other documents."""
    fresh = iter(range(10**6))

    def text(sentence):  # every UNK is a word that nothing else has
        return " ".join(f"u{next(fresh)}" if word == UNK else str(word) for word in sentence)

    scorer = CiderScorer()
    scorer.crefs = [cook_refs([text(r) for r in document]) for document in documents]
    scorer.compute_doc_freq()
    scorer.ctest = [cook_test(text(h)) for h in hypotheses]
    scorer.crefs = [cook_refs([text(r) for r in several]) for several in references]
    scorer.crefs += [None] * (len(documents) - len(references))  # only their number counts
    assert len(scorer.crefs) == len(documents)
    return [float(score) for score in scorer.compute_cider()]


def ended(documents):
    return [[[*r, EOS] for r in document] for document in documents]


def words(smallest):
    return st.lists(st.integers(smallest, 11), max_size=WIDTH - 1)


def several(smallest):
    return st.lists(words(smallest), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None, database=None)
@given(
    examples=st.lists(st.tuples(words(4), several(4)), min_size=1, max_size=12),
    documents=st.lists(several(4), max_size=12),
)
def test_a_sentence_scores_as_in_pycocoevalcap(examples, documents):
    hypotheses, references = zip(*examples, strict=True)
    documents = [*documents, *DOCUMENTS, *[[[20 + i]] for i in range(len(examples))]]
    frequencies = DocumentFrequencies.build(ended(documents))
    scores = cider.statistics(*tensors(hypotheses, references), frequencies)
    assert scores.dtype == torch.float32
    assert scores.shape == (len(examples), 1)
    expected = torch.tensor(coco(hypotheses, references, documents)).unsqueeze(1)
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=80, deadline=None, database=None)
@given(
    examples=st.lists(st.tuples(words(UNK), several(UNK)), min_size=1, max_size=12),
    documents=st.lists(several(UNK), max_size=8),
)
def test_each_unk_is_a_word_of_its_own(examples, documents):
    hypotheses, references = zip(*examples, strict=True)
    documents = [*documents, *DOCUMENTS, *[[[20 + i]] for i in range(len(examples))]]
    frequencies = DocumentFrequencies.build(ended(documents))
    scores = cider.statistics(*tensors(hypotheses, references), frequencies)
    expected = torch.tensor(coco(hypotheses, references, documents)).unsqueeze(1)
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_a_corpus_is_scored_by_its_own_references_as_papers_do(seed):
    draw = random.Random(seed)
    references = [
        [[draw.randint(4, 30) for _ in range(draw.randint(1, 20))] for _ in range(draw.randint(1, 5))]
        for _ in range(200)
    ]
    hypotheses = [[word for word in draw.choice(r) if draw.random() < 0.8] for r in references]
    scorer = CiderScorer()
    for h, several in zip(hypotheses, references, strict=True):
        scorer += (" ".join(map(str, h)), [" ".join(map(str, r)) for r in several])
    mean, _ = scorer.compute_score()
    metric = cider_metric(DocumentFrequencies.build(ended(references)))
    rows = metric.statistics(Rollout(*tensors(hypotheses, references, width=22)))
    assert metric.corpus(rows).item() == pytest.approx(100 * mean, rel=1e-5)
    samples = torch.randint(200, (3, 200))
    torch.testing.assert_close(metric.corpus(rows[samples]), torch.stack([metric.corpus(rows[s]) for s in samples]))


@pytest.mark.parametrize(
    ("hypothesis", "references"),
    [
        ([], [[4, 5]]),
        ([], [[]]),
        ([4], [[]]),
        ([4], [[4]]),
        ([7], [[7], [7, 7]]),
        ([7, 7, 7, 7, 7, 7], [[7, 7]]),
        ([7, 7], [[7, 7, 7, 7, 7], [7]]),
        ([6], [[6, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]]),  # the length penalty
        ([99, 98], [[99, 98]]),  # nothing that a document has
        ([4, 5, 6, 7], [[4, 5, 6, 7], [], [9]]),  # an empty reference is one of three
    ],
)
def test_a_special_sentence_scores_as_in_pycocoevalcap(hypothesis, references):
    frequencies = DocumentFrequencies.build(ended(DOCUMENTS))
    (expected,) = coco([hypothesis], [references], DOCUMENTS)
    for width in (13, 16):
        score = cider.statistics(*tensors([hypothesis], [references], width=width), frequencies)
        assert score.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_missing_references_do_not_count():
    reward = cider_metric(DocumentFrequencies.build(ended(DOCUMENTS))).reward
    words, references = tensors([[4, 5, 6, 7], [4, 5]], [[[4, 5, 6, 7]], [[4, 5, 7], [4, 6]]])
    missing = torch.full_like(references[:, :1], PAD)
    more = torch.cat([missing, references, missing], 1)
    torch.testing.assert_close(reward(Rollout(words, more)), reward(Rollout(words, references)))
    assert reward(Rollout(words, missing)).tolist() == [0, 0]
    assert reward(Rollout(words, references[:, :0])).tolist() == [0, 0]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sentences_may_be_shorter_than_the_longest_gram(width):
    frequencies = DocumentFrequencies.build(ended(DOCUMENTS))
    sentence = [7, 8, 9, 10][:width]  # cropped: no EOS
    words = torch.tensor([sentence])
    (expected,) = coco([sentence], [[sentence]], DOCUMENTS)
    assert cider.statistics(words, words.unsqueeze(1), frequencies).item() == pytest.approx(expected)


def test_the_reward_is_a_tenth_of_the_score_whatever_was_given():
    frequencies = DocumentFrequencies.build(ended(DOCUMENTS))
    words, references = tensors([[4, 5, 6, 7, 8], [4, 5, 6]], [[[4, 5, 6, 7, 8]], [[4, 6, 6], [4, 5, 9]]])
    rewards = cider_metric(frequencies).reward(Rollout(words, references, start=2))
    assert rewards[0].item() == pytest.approx(1)
    torch.testing.assert_close(rewards, cider.statistics(words, references, frequencies).squeeze(1) / 10)


def test_unk_can_be_a_word_like_any_other():
    metric = cider_metric(
        DocumentFrequencies.build(ended([*DOCUMENTS, [[11, 11]]]))
    )  # 11 is the last of the vocabulary
    words, references = tensors([[4, UNK, UNK, 4]], [[[4, UNK, UNK, 4]]])
    same, same_references = tensors([[4, 99, 99, 4]], [[[4, 99, 99, 4]]])
    assert metric.statistics(Rollout(words, references)).item() < 5
    torch.testing.assert_close(
        unk_as_word(metric).statistics(Rollout(words, references)), metric.statistics(Rollout(same, same_references))
    )


def test_the_tables_are_exact_for_any_vocabulary():
    large = 2**31
    documents = [[[large, large + 1, EOS]], [[5, large, EOS]], [[BOS, 5, EOS]]]
    frequencies = DocumentFrequencies.build(documents)
    first, second, third, _ = frequencies.weights(torch.tensor([[large, large + 1, 5, large, 6, large]]))
    by_count = torch.tensor([0, 3, 1.5, 1]).log()  # of an n-gram in 0 (as if in 1), 1, 2, 3 of 3 documents
    torch.testing.assert_close(first, by_count[[2, 1, 2, 2, 1, 2]].unsqueeze(0))
    torch.testing.assert_close(second, by_count[[1, 1, 1, 1, 1]].unsqueeze(0))
    assert third.shape == (1, 4)
    assert [len(keys) - 1 for keys in frequencies.keys] == [4, 3, 0, 0]


def test_words_that_no_document_has_are_no_others_key():
    frequencies = DocumentFrequencies.build(ended([[[4, 11], [5, 4]], [[4, 11], [5, 4]], [[5]]]))
    assert frequencies.vocab == 12
    _, second, *_ = frequencies.weights(torch.tensor([[4, 11, 99], [5, -1, 99], [4, 16, 99]]))  # 16 is 12 + 4
    unseen, seen = torch.tensor([3, 1.5]).log()
    torch.testing.assert_close(second[:, 0], torch.stack([seen, unseen, unseen]))


def test_document_frequencies_count_an_ngram_once_a_document():
    frequencies = DocumentFrequencies.build([[[5, 5, 5, EOS], [5, 5, EOS]], [[5, EOS]], [[6, EOS]]])
    first, second, *_ = frequencies.weights(torch.tensor([[5, 5]]))
    torch.testing.assert_close(first, torch.tensor([[1.5, 1.5]]).log())
    torch.testing.assert_close(second, torch.tensor([[3.0]]).log())


@pytest.mark.parametrize(
    ("documents", "says"),
    [([], "0 documents"), ([[[4, 5, 6, EOS]]], "1 documents"), ([[[4, 5, EOS]]] * 50, "50 documents")],
)
def test_document_frequencies_that_weigh_nothing_are_refused(documents, says):
    message = (
        f"CIDEr-D has document frequencies from {says}, whose references score 0.00 of 10 against themselves, so it "
        "would reward nothing: an n-gram that every document has weighs nothing. Build them from the references of all "
        "training examples, one document each."
    )
    with pytest.raises(RewardError, match=f"^{re.escape(message)}$"):
        DocumentFrequencies.build(documents)


def test_a_few_documents_without_weight_do_no_harm():
    documents = [[[4, EOS]]] * 5 + [[[4, 5 + i, EOS]] for i in range(5)] + [[[EOS]], []]
    assert DocumentFrequencies.build(documents).documents == 12


def test_document_frequencies_are_read_from_the_file_while_the_references_are_the_same(tmp_path, monkeypatch):
    path = tmp_path / "df.safetensors"
    documents = ended(DOCUMENTS)
    built = DocumentFrequencies.cached(path, documents)
    assert [file.name for file in tmp_path.iterdir()] == ["df.safetensors"]
    monkeypatch.setattr(cider, "_tables", None)  # building fails
    read = DocumentFrequencies.cached(path, iter(documents))
    assert (read.documents, read.vocab, read.fingerprint) == (built.documents, built.vocab, built.fingerprint)
    for mine, theirs in zip((*read.keys, *read.idf), (*built.keys, *built.idf), strict=True):
        assert torch.equal(mine, theirs)


def test_a_file_made_of_other_references_is_made_anew(tmp_path):
    path = tmp_path / "df.safetensors"
    one = ended(DOCUMENTS)
    DocumentFrequencies.cached(path, one)
    flat = [r for document in one for r in document]
    others = [
        [*one, [[4, EOS]]],
        one[::-1],
        [flat[:1], flat[1:3], flat[3:]],
        [[[*r[:-2], 9, EOS] for r in d] for d in one],
    ]
    seen = {cider.fingerprint(one)}
    for other in others:
        frequencies = DocumentFrequencies.cached(path, other)
        assert frequencies.documents == len(other)
        assert DocumentFrequencies.load(path).fingerprint == frequencies.fingerprint
        seen.add(frequencies.fingerprint)
    assert len(seen) == 5


def test_a_damaged_or_missing_file_is_named(tmp_path):
    path = tmp_path / "df.safetensors"
    message = f"{path}: no such file; `DocumentFrequencies.build(...).save(path)` makes one"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        DocumentFrequencies.load(path)
    path.write_bytes(b"short")
    message = f"{path}: not a file of document frequencies (Error while deserializing header: header too small); delete it to have it made anew"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        DocumentFrequencies.cached(path, ended(DOCUMENTS))
    save_file({"weight": torch.zeros(1)}, path)
    message = f"{path}: not a file of document frequencies (File does not contain tensor keys.0); delete it to have it made anew"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        DocumentFrequencies.load(path)


def test_cider_asks_the_device_no_question():
    """The meta device holds no values: an `.item()`, or a tensor made elsewhere, raises there."""
    reward = cider_metric(DocumentFrequencies.build(ended(DOCUMENTS))).reward
    words = torch.ones(4, 6, dtype=torch.long, device="meta")
    references = torch.ones(4, 3, 5, dtype=torch.long, device="meta")
    result = reward(Rollout(words, references))
    assert result.shape == (4,)
    assert result.device.type == "meta"


def test_the_frequencies_are_copied_once_to_a_device(monkeypatch):
    copies = []
    copy = DocumentFrequencies.to
    monkeypatch.setattr(DocumentFrequencies, "to", lambda self, device: copies.append(device) or copy(self, device))
    reward = cider_metric(DocumentFrequencies.build(ended(DOCUMENTS))).reward
    words, references = tensors([[4, 5]], [[[4, 5]]])
    for device in ("cpu", "meta", "cpu", "meta"):
        reward(Rollout(words.to(device), references.to(device)))
    assert [device.type for device in copies] == ["cpu", "meta"]


def test_the_signature_says_how_the_score_is_made():
    frequencies = DocumentFrequencies.build(ended(DOCUMENTS))
    metric = cider_metric(frequencies)
    df = f"df:3:{frequencies.fingerprint[:8]}"
    assert metric.name == "cider"
    assert metric.signature == f"cider-d|order:4|sigma:6|{df}|x100|mean:sentences|unk:never-matches|refs:mean"

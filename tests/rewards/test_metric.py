import pytest
import torch

from seqmixer.rewards import (
    BLEU,
    BLEU_BEST,
    BLEU_MEAN,
    EDIT,
    EXACT,
    LENGTH,
    METRICS,
    ROUGE1,
    ROUGE1_F,
    ROUGE2,
    ROUGE2_F,
    ROUGE_L,
    as_reward,
    rouge2_recall,
    unk_as_word,
)
from seqmixer.types import EOS, PAD, Rollout

COUNTED = (BLEU, BLEU_MEAN, BLEU_BEST, ROUGE1, ROUGE2, ROUGE1_F, ROUGE2_F, ROUGE_L, EDIT, EXACT, LENGTH)
every_metric = pytest.mark.parametrize("metric", COUNTED, ids=lambda metric: metric.name)


def rollout(count=30, start=0):
    """Random sentences of few words, with ends anywhere; the last two hypotheses are their references."""
    words = torch.randint(EOS, 7, (count, 8))
    references = torch.randint(EOS, 7, (count, 3, 9))
    references[:, 2] = PAD
    words[-2:] = torch.tensor([4, 5, 6, 4, 5, EOS, PAD, PAD])
    references[-2:, 1, :8] = words[-2:]
    return Rollout(words, references, start)


@every_metric
def test_a_metric_is_found_by_its_name(metric):
    assert METRICS[metric.name] is metric


@every_metric
def test_a_reward_is_the_score_of_a_corpus_of_one(metric):
    these = rollout()
    rewards = as_reward(metric)(these)
    assert rewards.shape == (30,)
    assert rewards.dtype == torch.float32
    alone = [
        metric.corpus(metric.statistics(Rollout(these.words[i : i + 1], these.references[i : i + 1]))) / 100
        for i in range(30)
    ]
    torch.testing.assert_close(rewards, torch.stack(alone))
    assert rewards[-2:].tolist() == pytest.approx([1, 1])
    assert (rewards >= 0).all()
    assert (rewards <= 1 + 1e-6).all()


@pytest.mark.parametrize("metric", COUNTED[1:], ids=lambda metric: metric.name)
def test_a_corpus_is_the_mean_of_its_sentences_for_all_but_bleu(metric):
    these = rollout()
    score = metric.corpus(metric.statistics(Rollout(these.words, these.references)))
    torch.testing.assert_close(score, 100 * as_reward(metric)(these).mean())


def test_given_words_are_scored_like_others():
    free, forced = rollout(start=0), rollout(start=4)
    forced = Rollout(free.words, free.references, forced.start)
    assert as_reward(ROUGE2)(forced).tolist() == as_reward(ROUGE2)(free).tolist()
    assert rouge2_recall(forced).tolist() != rouge2_recall(free).tolist()


@every_metric
def test_samples_of_rows_score_at_once(metric):
    these = rollout()
    rows = metric.statistics(Rollout(these.words, these.references))
    samples = torch.randint(30, (5, 30))
    torch.testing.assert_close(metric.corpus(rows[samples]), torch.stack([metric.corpus(rows[s]) for s in samples]))


@every_metric
def test_metrics_ask_the_device_no_question(metric):
    """The meta device holds no values: an `.item()`, or a tensor made elsewhere, raises there."""
    words = torch.ones(4, 6, dtype=torch.long, device="meta")
    references = torch.ones(4, 3, 5, dtype=torch.long, device="meta")
    for reward in (as_reward(metric), as_reward(unk_as_word(metric))):
        result = reward(Rollout(words, references))
        assert result.shape == (4,)
        assert result.device.type == "meta"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_metric
def test_a_graph_holds_every_metric(metric):
    reward = as_reward(metric)
    first, second = rollout(), rollout()
    held = Rollout(first.words.cuda(), first.references.cuda())
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        reward(held)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = reward(held)
    for these in (first, second):
        held.words.copy_(these.words)
        held.references.copy_(these.references)
        graph.replay()
        torch.testing.assert_close(result.cpu(), reward(these))


def test_unk_as_a_word_is_in_the_signature():
    assert unk_as_word(BLEU).signature == "bleu|order:4|smooth:none|unk:a-word|refs:closest"
    assert unk_as_word(LENGTH).signature == LENGTH.signature

"""The reward functions for other trainers, beside sacreBLEU, and inside TRL's own trainer."""

import pytest
import sacrebleu
import torch
from pycocoevalcap.cider.cider_scorer import CiderScorer

from seqmixer import reward_function
from seqmixer.errors import ConfigError, RewardError
from seqmixer.rewards import METRICS, as_reward, sentence_bleu, with_end
from seqmixer.types import Rollout

WRITTEN = ["the cat sat on the mat", "a dog", "It's the cat's mat, isn't it?", "", "the the the the the"]
WANTED = [
    ["the cat sat on a mat"],
    ["a dog", "one dog runs"],
    ["It is the cat's mat, isn't it?"],
    ["something"],
    ["the cat the dog"],
]


@pytest.mark.parametrize("tokenize", ["none", "13a"])
def test_mean_bleu_is_sacrebleus_of_each_sentence(tokenize):
    theirs = [
        sacrebleu.sentence_bleu(text, several, tokenize=tokenize).score / 100
        for text, several in zip(WRITTEN, WANTED, strict=True)
    ]
    ours = reward_function("bleu_mean", tokenize=tokenize)(WRITTEN, references=WANTED)
    assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(("name", "order"), [("chrf", 0), ("chrf++", 2)])
def test_chrf_is_sacrebleus_of_each_sentence(name, order):
    theirs = [
        sacrebleu.sentence_chrf(text, several, word_order=order).score / 100
        for text, several in zip(WRITTEN, WANTED, strict=True)
    ]
    assert reward_function(name)(WRITTEN, references=WANTED) == pytest.approx(theirs, abs=1e-6)


def test_bleu_is_what_a_run_is_rewarded_with():
    words = torch.tensor([[4, 5, 6, 2], [4, 7, 2, 0]])
    references = torch.tensor([[[4, 5, 6, 2]], [[4, 5, 6, 2]]])
    ours = reward_function("bleu")(["a b c", "a d"], references=["a b c", "a b c"])
    assert ours == sentence_bleu(Rollout(words, references)).tolist()


def test_a_weighted_sum_and_eos():
    words, references = torch.tensor([[4, 5, 2]]), torch.tensor([[[4, 5, 6, 2]]])
    parts = [with_end(METRICS[name]).reward(Rollout(words, references)).item() for name in ("rouge1_f", "rouge_l")]
    ours = reward_function("0.25*rouge1_f + 2*rouge_l", eos=True)(["a b"], references=["a b c"])
    assert ours == pytest.approx([0.25 * parts[0] + 2 * parts[1]])
    assert parts[0] != as_reward(METRICS["rouge1_f"])(Rollout(words, references)).item()


def test_a_batch_does_not_depend_on_those_before_it():
    reward = reward_function("chrf")
    alone = reward_function("chrf")(WRITTEN[:1], references=WANTED[:1])
    reward(WRITTEN[1:], references=WANTED[1:])
    assert reward(WRITTEN[:1], references=WANTED[:1]) == alone


def test_cider_is_pycocoevalcaps_with_the_documents_it_is_given():
    with pytest.raises(ConfigError, match="give documents="):
        reward_function("cider")
    written = ["a dog runs fast", "a cat sits", "one bird"]
    wanted = [["a dog runs", "the dog runs fast"], ["a cat sits there"], ["a bird", "one small bird flies"]]
    theirs = CiderScorer()
    for text, several in zip(written, wanted, strict=True):
        theirs += (text, several)
    ours = reward_function("cider", documents=wanted)(written, references=wanted)
    assert ours == pytest.approx([score / 10 for score in theirs.compute_score()[1]], abs=1e-6)


def test_conversations_and_other_columns():
    reward = reward_function("exact", references="answer")
    messages = [[{"role": "assistant", "content": "a b"}], [{"role": "assistant", "content": "a c"}]]
    assert reward(messages, prompts=["p", "q"], answer=["a b", "a b"], completion_ids=[[1], [2]]) == [1.0, 0.0]
    with pytest.raises(RewardError, match=r"reads the column 'answer', got the columns: references; name yours"):
        reward(["a"], references=["a"])
    with pytest.raises(RewardError, match="2 completions need as many references, got 1"):
        reward(["a", "b"], answer=["a"])


def test_as_verls_batched_function():
    """verl calls compute_score(data_sources, solution_strs, ground_truths, extra_infos)."""
    reward = reward_function("exact", references="ground_truths")

    def compute_score(data_sources, solution_strs, ground_truths, extra_infos):
        return reward(solution_strs, ground_truths=ground_truths)

    assert compute_score(["x", "x"], ["a b", "b"], ["a b", "a"], [{}, {}]) == [1.0, 0.0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_inside_trls_trainer(tmp_path):
    """A few steps of GRPO of a tiny Llama: the rewards that TRL logs are ours."""
    pytest.importorskip("trl")
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefgh"]
    plain = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(words), **shape, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    )
    data = Dataset.from_list([{"prompt": f"{a} {b}", "references": [f"{b} {a}", a]} for a in "abcd" for b in "efgh"])
    ours, seen = reward_function("0.5*rouge1_f + 0.5*length"), []

    def watched(completions, **columns):
        seen.append((completions, columns["references"], ours(completions, **columns)))
        return seen[-1][2]

    settings = GRPOConfig(
        str(tmp_path), max_steps=2, per_device_train_batch_size=4, num_generations=4, max_completion_length=4,
        logging_steps=1, report_to=[], use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = GRPOTrainer(model, [watched], args=settings, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    logged = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    assert len(logged) == 2
    assert logged == pytest.approx([sum(values) / len(values) for _, _, values in seen], abs=1e-6)
    for completions, references, values in seen:  # the sum, counted in plain Python
        for text, several, value in zip(completions, references, values, strict=True):
            assert value == pytest.approx(plainly(text.split(), [one.split() for one in several]), abs=1e-5)


def plainly(words, several):
    best = max(several, key=lambda one: f1(words, one)), max(several, key=lambda one: fit(words, one))
    return 0.5 * f1(words, best[0]) + 0.5 * fit(words, best[1])


def f1(words, wanted):
    shared = sum(min(words.count(word), wanted.count(word)) for word in set(words))
    return 2 * shared / (len(words) + len(wanted)) if words or wanted else 0


def fit(words, wanted):
    return min(len(words), len(wanted)) / max(len(words), len(wanted), 1)


@pytest.mark.parametrize("name", ["cider", "chrf", "chrf++", "rouge_l", "0.5*cider + chrf"])
def test_with_eos_the_end_counts_as_a_word_would(name):
    hypotheses, references = (
        ["a cat sat", "a cat sat on the", "the dog"],
        ["a cat sat on the mat", "the cat", "the dog"],
    )
    documents = [["a cat sat on the mat", "a dog"], ["the cat"], ["the dog"], ["on the mat"]]
    ours = reward_function(name, eos=True, documents=documents)(hypotheses, references=references)
    hypotheses, references = ([f"{text} $" for text in texts] for texts in (hypotheses, references))
    written = [[f"{text} $" for text in several] for several in documents]
    assert ours == pytest.approx(reward_function(name, documents=written)(hypotheses, references=references))

import json

import pytest
import sentencepiece

import tiny
from seqmixer.data import Vocab, read_tokenizer, recoded, text_task, token_ids, tokenizer_vocabs
from seqmixer.data.vocab import SPECIALS
from seqmixer.errors import ConfigError
from seqmixer.rewards.subwords import Merges, Style, detect
from seqmixer.types import BOS, EOS, PAD, UNK

TEXT = ["the cat saw the dog", "isn't Zürich a city?", "a zebra", ""]


@pytest.fixture(params=["t5", "bart", "llama", "gpt2"])
def place(request, tmp_path):
    """-> path, tokenizer, whether its model has an encoder"""
    kind = request.param
    made = tiny.byte_pieces() if kind == "gpt2" else tiny.sentencepieces(begins=kind == "llama", bos=kind == "bart")
    made.save_pretrained(tmp_path)
    return str(tmp_path), made, kind in ("t5", "bart")


def test_sources_are_the_tokens_of_the_tokenizer_in_other_words(place):
    path, tokenizer, encoder = place
    sources, _ = tokenizer_vocabs(path, encoder=encoder)

    for text, words in zip(TEXT, sources.encode_all(TEXT), strict=True):
        tokens = tokenizer(text).input_ids
        assert [sources.ids[word] for word in words] == (tokens or [tokenizer.bos_token_id])
        assert words == sources.encode(text)
        assert PAD not in words


def test_targets_end_once_and_decode_to_the_text_they_were(place):
    path, tokenizer, encoder = place
    _, targets = tokenizer_vocabs(path, encoder=encoder)

    for text, words in zip(TEXT, targets.encode_all(TEXT), strict=True):
        assert (words.count(EOS), words[-1]) == (1, EOS)
        if UNK not in words:
            assert targets.decode([BOS, *words, PAD, PAD]) == text
        assert targets.decode(words) == " ".join(
            tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True).split()
        )


def test_the_four_come_first_and_then_every_other_token_in_order(place):
    path, tokenizer, encoder = place
    _, targets = tokenizer_vocabs(path, encoder=encoder)
    rest = targets.ids[UNK + 1 :]

    assert targets.words[: UNK + 1] == SPECIALS
    assert targets.ids[EOS] == tokenizer.eos_token_id
    assert list(rest) == sorted(rest)
    assert {*rest, *targets.ids[PAD : UNK + 1]} >= set(tokenizer.get_vocab().values())
    assert not set(rest) & {tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
    for word, token in zip(targets.words[UNK + 1 :], rest, strict=True):
        assert word == ("" if token in tokenizer.all_special_ids else tokenizer.convert_ids_to_tokens(token))


def test_a_tokenizer_without_padding_and_unknown_words_lends_them_the_id_of_eos(tmp_path):
    tiny.byte_pieces().save_pretrained(tmp_path)

    assert token_ids(read_tokenizer(str(tmp_path)), "here")[:4] == (0, 0, 0, 0)


def test_ends_and_padding_inside_a_text_are_no_words(tmp_path):
    tiny.sentencepieces().save_pretrained(tmp_path)
    sources, targets = tokenizer_vocabs(str(tmp_path), encoder=True)

    words = targets.encode("the </s> cat <pad>")
    assert (words.count(EOS), words.count(PAD)) == (1, 0)
    assert targets.decode(words) == "the cat"
    assert PAD not in sources.encode("the <pad> cat")


def test_a_prompt_does_not_end_and_what_follows_begins_a_word(tmp_path):
    tiny.byte_pieces().save_pretrained(tmp_path / "bytes")
    tiny.sentencepieces(bos=True).save_pretrained(tmp_path / "pieces")  # which puts EOS after everything

    prompts, targets = tokenizer_vocabs(str(tmp_path / "bytes"), encoder=False, suffix=" so:")
    together = prompts.encode("the cat") + targets.encode("a dog")
    assert prompts.tokenizer("the cat so: a dog").input_ids == [prompts.ids[word] for word in together[:-1]]
    assert targets.encode(" a dog") == targets.encode("a dog")

    prompts, targets = tokenizer_vocabs(str(tmp_path / "pieces"), encoder=False)
    assert EOS not in prompts.encode("the cat")
    assert targets.words[targets.encode("a dog")[0]] == "▁a"


def test_prefix_suffix_and_crop(tmp_path):
    tiny.byte_pieces().save_pretrained(tmp_path / "bytes")
    tiny.sentencepieces().save_pretrained(tmp_path / "pieces")
    plain, _ = tokenizer_vocabs(str(tmp_path / "pieces"), encoder=True)
    cropped, targets = tokenizer_vocabs(str(tmp_path / "pieces"), encoder=True, prefix="the ", limit=5)
    prompts, _ = tokenizer_vocabs(str(tmp_path / "bytes"), encoder=False, suffix=" a:", limit=3)

    assert cropped.encode("dog") == plain.encode("the dog")
    long = cropped.encode("cat saw the dog in the house")
    assert (len(long), long[-1]) == (5, EOS)
    assert long[:-1] == plain.encode("the cat saw the dog in the house")[:4]
    assert targets.encode("dog") == plain.encode("dog")  # only sources have it
    after = [prompts.own[token] for token in prompts.tokenizer(" a:").input_ids]
    assert prompts.encode("the dog in the house")[3:] == after
    assert cropped != plain


def test_vocabularies_of_the_same_tokenizer_are_equal_also_from_its_copy(place, tmp_path):
    path, _, encoder = place
    first = tokenizer_vocabs(path, encoder=encoder)
    first[1].save(tmp_path / "copy")

    assert tokenizer_vocabs(str(tmp_path / "copy"), encoder=encoder) == first
    assert first[0] != first[1]


def test_pieces_are_merged_into_words_for_rewards(place):
    path, _, encoder = place
    _, targets = tokenizer_vocabs(path, encoder=encoder)

    style = detect(targets.words)

    assert style is (Style.SENTENCEPIECE if path and "▁a" in targets.words else Style.BYTES)
    assert Merges.of(targets.words, style)


def test_a_task_in_other_words_is_the_same_text(tmp_path):
    tiny.sentencepieces().save_pretrained(tmp_path)
    pairs = ["the cat", "a dog"], [["die katze"], ["ein hund", "der hund"]]
    task = text_task("here", pairs, pairs, pairs, length=None)

    again = recoded(task, tokenizer_vocabs(str(tmp_path), encoder=True), None)

    assert isinstance(task.target_vocab, Vocab)
    assert again.train.meta == task.train.meta
    assert [[again.target_vocab.decode(words) for words in group] for group in again.train.references] == pairs[1]
    assert again.train.sources == again.source_vocab.encode_all(pairs[0])
    assert again.length == max(len(words) for group in again.train.references for words in group)


def test_marian_reads_the_two_languages_with_a_model_each(tmp_path):
    from transformers import MarianTokenizer

    for name, lines in (("source", tiny.LINES[3:]), ("target", tiny.LINES[:3])):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
        sentencepiece.SentencePieceTrainer.train(
            input=str(tmp_path / f"{name}.txt"), model_prefix=str(tmp_path / name), vocab_size=36, minloglevel=5,
            hard_vocab_limit=False, bos_id=-1, eos_id=-1,
        )  # fmt: skip
        (tmp_path / f"{name}.model").rename(tmp_path / f"{name}.spm")
    models = [
        sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / f"{name}.spm")) for name in ("source", "target")
    ]
    pieces = dict.fromkeys(model.id_to_piece(i) for model in models for i in range(1, model.get_piece_size()))
    tokens = ["</s>", "<unk>", *pieces, "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    MarianTokenizer(
        str(tmp_path / "source.spm"), str(tmp_path / "target.spm"), str(tmp_path / "vocab.json"),
        source_lang="de", target_lang="en",
    ).save_pretrained(tmp_path / "saved")  # fmt: skip

    sources, targets = tokenizer_vocabs(str(tmp_path / "saved"), encoder=True)

    german, english = "der hund sieht die katze", "the cat saw the dog"
    assert [sources.words[word] for word in sources.encode(german)[:-1]] == models[0].encode(german, out_type=str)
    assert [targets.words[word] for word in targets.encode(english)[:-1]] == models[1].encode(english, out_type=str)
    assert targets.decode(targets.encode(english)) == english


def message(function):
    with pytest.raises(ConfigError) as caught:
        function()
    return str(caught.value)


def test_a_tokenizer_that_cannot_be_used_is_named(tmp_path):
    tokenizer = tiny.sentencepieces()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "empty").mkdir()

    assert message(lambda: tokenizer_vocabs(str(tmp_path), encoder=True)) == (
        f"model.path = '{tmp_path}': the tokenizer has no eos_token, so that no sentence can end; set one"
    )
    assert message(lambda: tokenizer_vocabs(str(tmp_path / "empty"), encoder=True)).startswith(
        f"model.path = '{tmp_path / 'empty'}' has no tokenizer that can be loaded: "
    )
    assert message(lambda: tokenizer_vocabs(str(tmp_path), encoder=True, suffix=" so:")) == (
        f"data.suffix = ' so:' stands between a prompt and its target; '{tmp_path}' has an encoder"
    )

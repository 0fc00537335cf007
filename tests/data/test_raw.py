import io
import unicodedata

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer, MosesTokenizer

from prose import prose
from seqmixer.data import Preprocessing, ReadableVocab, VocabLimits, learn_vocab, load_vocab
from seqmixer.data.steps import Moses, Normal, SentencePieces, TrueCase
from seqmixer.errors import ConfigError, DataError

ENGLISH = [english for _, english in prose(120)]
ODD = (
    "Mr. O'Neil, e.g. at 5 p.m. (U.S.): No. 7 costs 3,000... \"it's\" a.b.c. x? y. & z… www.a.b/c 'quoted' etc. so on ."
)
EVERYTHING = Preprocessing("NFC", "en", "true", subwords=120)


@given(st.lists(st.sampled_from(ODD.split()), max_size=12).map(" ".join))
@example(ODD)
def test_moses_is_sacremoses(text):
    tokenizer, moses = MosesTokenizer("en"), Moses("en")
    words = moses.encode(text)
    assert words.split() == tokenizer.tokenize(text, escape=False)
    assert moses.decode(words) == MosesDetokenizer("en").detokenize(words.split(), unescape=False)


@given(st.text(max_size=30))
@example("\x00a\x1b[31mb\u2028c\x85d\u202ee\u200f\tf")
def test_normal_text_has_no_control_characters_and_single_spaces(text):
    normal = Normal("NFC").encode(text)
    assert not {letter for letter in normal if unicodedata.category(letter) == "Cc" or "\u202a" <= letter <= "\u202e"}
    assert normal == " ".join(normal.split())
    assert Normal("NFC").encode(normal) == normal
    assert [x for x in normal if x.isalnum()] == [x for x in unicodedata.normalize("NFC", text) if x.isalnum()]


def test_the_first_word_has_the_case_that_it_has_inside():
    case = TrueCase.learn(["He saw The Hague", "He likes the hat", "In the US", 'She said "no"', "they like US and us"])
    assert case.encode("The hat") == "the hat"
    assert case.encode('" The hat') == '" the hat'
    assert case.encode("US and us") == "US and us"  # as often as us
    assert case.encode("Hague") == "Hague"
    assert case.decode('" the hat') == '" The hat'
    assert case.decode(case.encode("")) == ""
    assert case.encode("... !") == case.decode("... !") == "... !"


def test_a_pipeline_gives_back_what_it_reads():
    pipeline, words = EVERYTHING.learn(ENGLISH, "english")
    assert [pipeline.encode(text) for text in ENGLISH] == words
    assert [pipeline.decode(text) for text in words] == ENGLISH
    assert words[0].split()[:2] == ["▁the", "▁dog"]
    unseen = "The street doesn't laugh, Anna!"
    assert pipeline.decode(pipeline.encode(unseen)) == unseen


def test_what_is_learnt_is_saved_beside_the_vocabulary(tmp_path):
    vocab = learn_vocab(EVERYTHING, ENGLISH, VocabLimits(), "english")
    assert vocab.encode_all(ENGLISH) == vocab.encode_all(ENGLISH)  # the first time from what was learnt
    vocab.save(tmp_path / "target.vocab")
    assert {path.name for path in tmp_path.iterdir()} == {"target.vocab", "target.case", "target.pieces"}
    again = load_vocab(EVERYTHING, tmp_path / "target.vocab")
    assert again == vocab
    assert [again.decode(ids) for ids in again.encode_all(ENGLISH)] == ENGLISH
    assert again.words_of("The dog") == ["▁the", "▁dog"]
    assert learn_vocab(EVERYTHING, ENGLISH[::-1], VocabLimits(), "english").pipeline == vocab.pipeline
    assert learn_vocab(EVERYTHING, ENGLISH[:50], VocabLimits(), "english") != vocab


def test_lower_case_is_for_good_and_without_steps_words_are_as_they_are():
    lower = learn_vocab(Preprocessing(case="lower"), ENGLISH, VocabLimits(), "english")
    assert lower.decode(lower.encode("The DOG sleeps")) == "the dog sleeps"
    assert lower.signature == "text:lower"
    plain = learn_vocab(Preprocessing(), ENGLISH, VocabLimits(), "english")
    assert plain.words_of("The dog.") == ["The", "dog."]
    assert plain.signature == ""


def test_unknown_words_are_written_as_such():
    vocab = learn_vocab(Preprocessing("NFC", "en", "true"), ENGLISH, VocabLimits(min_count=2), "english")
    assert vocab.decode(vocab.encode("The unicorn sleeps.")) == "The <unk> sleeps."
    pieces = learn_vocab(EVERYTHING, ENGLISH, VocabLimits(), "english")
    assert pieces.decode(pieces.encode("The ☃ sleeps.")) == "The <unk> sleeps."
    assert pieces.decode(pieces.encode("The elk sleeps.")) == "The elk sleeps."


def test_a_model_of_sentencepiece_that_is_there_already(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH), model_writer=model, vocab_size=90, minloglevel=2, hard_vocab_limit=False
    )
    (tmp_path / "en.model").write_bytes(model.getvalue())
    there = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pipeline, words = Preprocessing(model=tmp_path / "en.model").learn(ENGLISH, "english")
    assert words == [" ".join(there.encode(text, out_type=str)) for text in ENGLISH]
    assert [pipeline.decode(text) for text in words] == ENGLISH

    (tmp_path / "no.model").write_bytes(b"\x00 this is no model")
    with pytest.raises(DataError, match=r"no\.model: not a model of sentencepiece"):
        Preprocessing(model=tmp_path / "no.model").learn(ENGLISH, "english")


def test_what_cannot_be_learnt_is_one_line():
    with pytest.raises(DataError) as error:
        SentencePieces.learn(ENGLISH, 20)
    letters = len(set("".join(ENGLISH)))
    assert str(error.value) == (
        f"text.subwords = 20 is too small for the {letters} different characters of the training text; raise it, or remove it"
    )
    with pytest.raises(
        ConfigError, match=r"unknown language of Moses' tokeniser 'eng'. Did you mean 'en'\? Known: as, bn"
    ):
        Moses("eng")


def test_words_without_an_end_are_not_kept():
    vocab = learn_vocab(Preprocessing("NFC"), ["a " + "b" * 1001, "a " + "c" * 1000], VocabLimits(), "hostile")
    assert vocab.words[4:] == ("a", "c" * 1000)
    assert isinstance(vocab, ReadableVocab)

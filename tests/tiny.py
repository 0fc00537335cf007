"""Tiny random models and tokenizers of transformers, made here: nothing is downloaded."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

LINES = [
    "the cat saw the dog in the house",
    "a dog ran to the cat",
    "is Zürich a city, isn't it?",
    "der hund sieht die katze im haus",
    "ein haus ist da",
]
SPECIALS = ["<pad>", "</s>", "<unk>", "<s>", "<mask>"]  # ids 0, 1, 2, 3, 4
NAMES = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}

NO_DROPOUT = {
    "t5": {"dropout_rate": 0.0},
    "bart": {"dropout": 0.0},
    "marian": {"dropout": 0.0},
    "gpt2": {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0},
    "llama": {},
}


def sentencepieces(lines=LINES, size=90, begins=False, bos=False):
    """As T5 (or Llama: `begins`) has it: pieces that begin a word are marked with ▁."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    template = "<s> $A" if begins else "<s> $A </s>" if bos else "$A </s>"
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 3), ("</s>", 1)])
    names = {**NAMES, "mask_token": "<mask>", **({"bos_token": "<s>"} if begins or bos else {})}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def byte_pieces(lines=LINES, size=300):
    """As GPT-2 has it: bytes, pieces that begin a word marked with Ġ, one special token, no padding."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end, unk_token=end)


def network(kind, vocab_size, hidden=8, ids=(0, 1, 3), layers=2, **settings):
    """A network with random weights. `ids` are those of padding, EOS and BOS."""
    return scrambled(untrained(kind, vocab_size, hidden, ids, layers, **settings))


def untrained(kind, vocab_size, hidden=8, ids=(0, 1, 3), layers=2, **settings):
    """A network as transformers makes it."""
    import transformers

    pad, end, begin = ids
    ends = {"pad_token_id": pad, "eos_token_id": end, "bos_token_id": begin}
    both = {f"{side}_{name}": n for side in ("encoder", "decoder")
            for name, n in (("layers", layers), ("attention_heads", 2), ("ffn_dim", 2 * hidden))}  # fmt: skip
    bart_like = {"d_model": hidden, "max_position_embeddings": 40, **both, **ends}
    t5_like = {"d_model": hidden, "d_kv": 4, "d_ff": 2 * hidden, "num_layers": layers, "num_heads": 2, **ends}
    made = {
        "t5": ("T5", "ForConditionalGeneration", {**t5_like, "decoder_start_token_id": pad}),
        "mt5": ("MT5", "ForConditionalGeneration", {**t5_like, "decoder_start_token_id": pad, "tie_word_embeddings": False}),
        "bart": ("Bart", "ForConditionalGeneration", {**bart_like, "decoder_start_token_id": end, "forced_eos_token_id": None}),
        "marian": ("Marian", "MTModel", {**bart_like, "decoder_start_token_id": pad, "scale_embedding": True, "forced_eos_token_id": None}),
        "nllb": ("M2M100", "ForConditionalGeneration", {**bart_like, "decoder_start_token_id": end, "scale_embedding": True}),
        "gpt2": ("GPT2", "LMHeadModel", {"n_embd": hidden, "n_layer": layers, "n_head": 2, "n_positions": 120, **ends}),
        "llama": ("Llama", "ForCausalLM", {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 120, **ends}),
    }  # fmt: skip
    name, suffix, shape = made[kind]
    config = getattr(transformers, f"{name}Config")(vocab_size=vocab_size, **{**shape, **settings})
    return getattr(transformers, f"{name}{suffix}")(config)


def scrambled(net, spread=0.5):
    """Random weights large enough that a wrong one shows."""
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=spread)
    for name, buffer in net.named_buffers():
        if name == "final_logits_bias":
            nn.init.normal_(buffer)
    return net.eval()


def saved(kind, folder, tokenizer=None, **settings):
    """A folder as `save_pretrained` leaves it."""
    import transformers

    if tokenizer is None:
        tokenizer = byte_pieces() if kind == "gpt2" else sentencepieces(begins=kind == "llama", bos=kind == "bart")
    ids = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id
    torch.manual_seed(0)
    net = network(kind, len(tokenizer) + 3, ids=ids, **settings)  # three rows that no token uses
    transformers.utils.logging.disable_progress_bar()
    net.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)

"""Summarise with T5, rewarded by ROUGE, then use it without seqmixer. Usage: python t5_on_rouge.py [MODEL [EPOCHS]]"""

import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from seqmixer import Config, train

model = sys.argv[1] if len(sys.argv) > 1 else "google-t5/t5-small"  # a folder, or a name of the hub
epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
config = Config.parse(
    {
        "name": "t5-on-rouge",
        "data": {"task": "toy-summarization", "prefix": "summarize: "},  # or "text", with your own files
        "model": {"name": "huggingface", "path": model},
        "algorithm": {"name": "mixer", "xent_epochs": epochs, "mixed_epochs": 1, "delta": 6},
        "reward": {"name": "0.5*rouge2_f + 0.5*rouge_l"},
        "training": {"batch_size": 16, "lr": 3e-4, "rl_lr": 3e-5, "clip": 1.0},
        "evaluation": {"metrics": ["rouge_l"]},
    }
)
run = train(config)
print(run.evaluate().score)

network = AutoModelForSeq2SeqLM.from_pretrained(run.folder / "pretrained")
tokenizer = AutoTokenizer.from_pretrained(run.folder / "pretrained")
source = run.task().test.meta[0]["source"]
written = network.generate(**tokenizer(f"summarize: {source}", return_tensors="pt"), max_new_tokens=20)
print(tokenizer.decode(written[0], skip_special_tokens=True), file=sys.stderr)

"""toy-summarization: from the first sentence of a news item to its headline.

The sentence has modifiers that no headline keeps (who was told, on which day, how angry) and a reason that a headline
may keep. Headlines come in two styles. The short one (40%) names the country alone and seldom gives the reason; the
full one (60%) names the office as well, by one of three names, and mostly gives the reason. No opening of the full
style is as likely as that of the short style, so greedy search on a perfect model of words writes short headlines, and
so does the search for the most likely one. ROUGE-2 recall, the paper's metric for this task, prefers the full ones.
"""

import random
from dataclasses import dataclass

from seqmixer.data.task import Task
from seqmixer.data.toy.splits import pairs
from seqmixer.data.toy.variants import Variants, chain, distinct, evenly, fixed, mix

COUNTRIES = ("brazil", "chile", "egypt", "france", "ghana", "india", "japan", "kenya", "norway", "peru")
OFFICES = {  # as the item says it -> as headlines say it
    "president": ("president", "leader", "chief"),
    "government": ("government", "cabinet", "ministers"),
    "parliament": ("parliament", "lawmakers", "deputies"),
    "supreme court": ("court", "judges", "justices"),
    "central bank": ("bank", "bankers", "lenders"),
    "army": ("army", "troops", "generals"),
}
ACTIONS = {  # plain form -> as the short style says it
    "cut": "cuts",
    "raise": "raises",
    "stop": "stops",
    "approve": "approves",
    "reject": "rejects",
    "delay": "delays",
    "review": "reviews",
    "defend": "defends",
}
KINDS = ("fuel", "food", "steel", "timber", "rice", "oil", "coal", "copper")
MATTERS = ("taxes", "exports", "imports", "subsidies", "prices", "sales")
SPANS = ("days", "weeks", "months", "years")
EVENTS = ("protests", "strikes", "floods", "talks", "storms", "riots")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday")
REPORTS = ("said on {}", "told reporters on {}", "announced late {}", "confirmed on {}")
QUALITIES = ("new", "embattled", "cautious", "powerful")
STRENGTHS = ("angry", "heavy", "tense", "bitter")

FULL = 0.6  # the share of headlines that name the office
REASON_IF_FULL, REASON_IF_SHORT = 0.6, 0.2  # how often the reason is kept


@dataclass(frozen=True)
class Item:
    """What happened, and the words around it."""

    country: str
    office: str
    action: str
    kind: str
    matter: str
    span: str
    event: str
    report: str
    quality: str
    strength: str
    reason_first: bool


def summarization(seed: int = 1, train: int = 12000, valid: int = 300, test: int = 500) -> Task:
    """The built-in summarization task: one sampled headline per sentence, all variants in `meta["variants"]`."""
    rng = random.Random(seed)
    items = distinct(rng, invent, train + valid + test)
    sources = [sentence(item) for item in items]
    return pairs("toy-summarization", rng, sources, [headlines(item) for item in items], (train, valid, test))


def invent(rng: random.Random) -> Item:
    """An item at random."""
    return Item(
        country=rng.choice(COUNTRIES),
        office=rng.choice(list(OFFICES)),
        action=rng.choice(list(ACTIONS)),
        kind=rng.choice(KINDS),
        matter=rng.choice(MATTERS),
        span=rng.choice(SPANS),
        event=rng.choice(EVENTS),
        report=rng.choice(REPORTS).format(rng.choice(DAYS)),
        quality=rng.choice((*QUALITIES, "", "")),
        strength=rng.choice((*STRENGTHS, "", "")),
        reason_first=rng.random() < 0.3,
    )


def sentence(item: Item) -> str:
    """The item's first sentence.

    >>> item = Item("peru", "army", "stop", "oil", "sales", "days", "riots", "said on friday", "new", "", False)
    >>> sentence(item)
    'the new army of peru said on friday that it would stop oil sales after days of riots'
    """
    who = f"the {item.quality} {item.office} of {item.country} {item.report} that it"
    what = f"would {item.action} {item.kind} {item.matter}"
    reason = f"after {item.span} of {item.strength} {item.event}"
    parts = (reason, ",", who, what) if item.reason_first else (who, what, reason)
    return " ".join(" ".join(parts).split())


def headlines(item: Item) -> Variants:
    """Every headline for the item, with its probability."""
    what = fixed(f"{item.kind} {item.matter}")
    reason = evenly(*(f"{link} {item.span} of {item.event}" for link in ("after", "amid", "following")))
    in_full = mix((REASON_IF_FULL, reason), (1 - REASON_IF_FULL, fixed("")))
    in_short = mix((REASON_IF_SHORT, reason), (1 - REASON_IF_SHORT, fixed("")))
    office = evenly(*OFFICES[item.office])
    full = chain(office, fixed(f"of {item.country} to {item.action}"), what, in_full)
    short = chain(fixed(f"{item.country} {ACTIONS[item.action]}"), what, in_short)
    return mix((FULL, full), (1 - FULL, short))

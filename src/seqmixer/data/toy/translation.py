"""toy-translation: from a verb-final language with cases, invented for this project, to a small English.

Source: [time] subject [place] object verb. Nouns show number and case, adjectives agree with their noun, verbs show
tense only. Target: verbs agree in number, and there are two styles. The spoken one (65%) is active; it opens in one of
four ways, and continues with everyday words. The written one (35%) is passive and always opens with the object. So no
spoken opening is as likely as the written one, and no spoken sentence as likely as the likeliest written one, although
most references are spoken: greedy search on a perfect model of words writes passives, and so does the search for the
most likely sentence, while BLEU prefers actives.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from seqmixer.data.task import Task
from seqmixer.data.toy.splits import pairs
from seqmixer.data.toy.variants import Variants, chain, distinct, evenly, fixed, mix

PEOPLE = {  # stem -> the everyday word and its synonyms
    "barn": ("child", "kid", "youngster"),
    "fisk": ("fisherman", "angler", "sailor"),
    "gard": ("farmer", "grower", "peasant"),
    "kong": ("king", "ruler", "monarch"),
    "lerk": ("teacher", "tutor", "master"),
    "medik": ("doctor", "healer", "physician"),
    "sang": ("singer", "vocalist", "performer"),
    "vakt": ("guard", "watchman", "soldier"),
}
THINGS = {
    "bat": "boat",
    "bok": "book",
    "dom": "house",
    "hak": "axe",
    "kat": "cat",
    "lamp": "lamp",
    "pan": "loaf",
    "roz": "rose",
    "trom": "drum",
    "vel": "sail",
}
ADJECTIVES = {"gam": "old", "ung": "young", "hog": "tall", "rod": "red", "vak": "fine", "lit": "little"}
VERBS = {  # stem -> plain form, past, participle
    "find": ("find", "found", "found"),
    "gem": ("hide", "hid", "hidden"),
    "kop": ("buy", "bought", "bought"),
    "mal": ("paint", "painted", "painted"),
    "sel": ("sell", "sold", "sold"),
    "ser": ("see", "saw", "seen"),
    "stel": ("steal", "stole", "stolen"),
    "tag": ("take", "took", "taken"),
}
PLACES = {"torga": "market", "skova": "forest", "havna": "harbour", "brua": "bridge", "kirka": "church"}
TIMES = {  # tense -> word -> as the written style says it, and three more ways to open a spoken sentence
    "past": {
        "igar": ("yesterday", "one day ago", "a day earlier", "only yesterday"),
        "ivuk": ("recently", "last week", "days ago", "not long ago"),
    },
    "present": {
        "idag": ("today", "now", "this very day", "right now"),
        "alti": ("always", "every day", "day after day", "each day"),
    },
    "future": {
        "imor": ("tomorrow", "in a day", "one day later", "as from tomorrow"),
        "snart": ("soon", "before long", "some day", "very soon"),
    },
}
TENSES = {"past": "ta", "present": "re", "future": "sku"}  # the ending of the verb
PLURALS = {"child": "children", "fisherman": "fishermen", "watchman": "watchmen", "loaf": "loaves"}

OPENINGS = ("so", "well", "look", "listen")  # of a spoken sentence without a time

SPOKEN = 0.65  # the share of spoken references
PLACED = 0.7  # how often a spoken reference keeps the place


@dataclass(frozen=True)
class Noun:
    stem: str
    plural: bool
    adjective: str | None


@dataclass(frozen=True)
class Clause:
    """What is said, in neither language."""

    subject: Noun
    object: Noun
    verb: str
    tense: str
    time: str | None
    place: str | None


def translation(seed: int = 1, train: int = 12000, valid: int = 300, test: int = 500) -> Task:
    """The built-in translation task: one sampled reference per source, all variants in `meta["variants"]`."""
    rng = random.Random(seed)
    clauses = distinct(rng, invent, train + valid + test)
    sources = [source(clause) for clause in clauses]
    return pairs("toy-translation", rng, sources, [translations(clause) for clause in clauses], (train, valid, test))


def invent(rng: random.Random) -> Clause:
    """A clause at random."""

    def noun(stems: Iterable[str]) -> Noun:
        adjective = rng.choice(list(ADJECTIVES)) if rng.random() < 0.5 else None
        return Noun(rng.choice(list(stems)), rng.random() < 0.4, adjective)

    tense = rng.choice(list(TENSES))
    time = rng.choice(list(TIMES[tense])) if rng.random() < 0.6 else None
    place = rng.choice(list(PLACES)) if rng.random() < 0.6 else None
    return Clause(noun(PEOPLE), noun(THINGS), rng.choice(list(VERBS)), tense, time, place)


def source(clause: Clause) -> str:
    """The clause in the invented language.

    >>> source(Clause(Noun("gard", True, "gam"), Noun("bat", False, None), "kop", "past", "igar", "torga"))
    'igar gamar garder torga baten kopta'
    """

    def phrase(noun: Noun, case: str) -> str:
        ending = ("r" if noun.plural else "") + case
        adjective = f"{noun.adjective}a{ending} " if noun.adjective else ""
        return f"{adjective}{noun.stem}e{ending}"

    verb = clause.verb + TENSES[clause.tense]
    words = (clause.time, phrase(clause.subject, ""), clause.place, phrase(clause.object, "n"), verb)
    return " ".join(word for word in words if word)


def translations(clause: Clause) -> Variants:
    """Every English sentence for the clause, with its probability."""
    times = TIMES[clause.tense][clause.time] if clause.time else ("",)
    everyday, *others = PEOPLE[clause.subject.stem]
    subject = _phrase(clause.subject, [everyday])
    thing = _phrase(clause.object, [THINGS[clause.object.stem]])
    place = fixed(f"at the {PLACES[clause.place]}" if clause.place else "")

    opening = evenly(*(times if clause.time else OPENINGS))
    spoken = chain(opening, subject, fixed(active(clause)), thing, mix((PLACED, place), (1 - PLACED, fixed(""))))

    agent = chain(fixed("by"), mix((0.6, subject), (0.4, _phrase(clause.subject, others))))
    order = mix((0.8, chain(agent, place)), (0.2, chain(place, agent)))
    written = chain(thing, fixed(passive(clause)), order, fixed(times[0]))
    return mix((SPOKEN, spoken), (1 - SPOKEN, written))


def active(clause: Clause) -> str:
    """The verb, agreeing with the subject: buys, buy, bought, will buy."""
    plain, past, _ = VERBS[clause.verb]
    forms = {"past": past, "present": plain if clause.subject.plural else plain + "s", "future": f"will {plain}"}
    return forms[clause.tense]


def passive(clause: Clause) -> str:
    """The verb, agreeing with the object: is bought, are bought, was bought, were bought, will be bought."""
    plural = clause.object.plural
    forms = {"past": "were" if plural else "was", "present": "are" if plural else "is", "future": "will be"}
    return f"{forms[clause.tense]} {VERBS[clause.verb][2]}"


def _phrase(noun: Noun, names: list[str]) -> Variants:
    adjective = fixed(ADJECTIVES[noun.adjective] if noun.adjective else "")
    forms = [PLURALS.get(name, name + "s") if noun.plural else name for name in names]
    return chain(fixed("the"), adjective, evenly(*forms))

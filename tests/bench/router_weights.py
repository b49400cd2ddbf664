"""Write `brain/assist/router.bin`, what the router learned of the included specialists. It takes half a minute.

Run it when examples or descriptions of an included specialist, `no_specialist.txt` or the features change. The texts
themselves, each left out of a fit once, give the sigmoid that turns a lead into a probability.
"""

import math
import random
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from brain.assist.router import AnySpecialist, label_texts, learn
from brain.assist.weights import SHIPPED, Vocabulary, count_features, fit
from brain.plugins.registry import Registry

FOLDS = 5
ROUNDS = 100
"""Steps of Newton's method."""


def main() -> int:
    specialists = [
        entry.specialist for entry in Registry().discover().values() if entry.origin.startswith("brain-sse ")
    ]
    learned = replace(learn(specialists), sigmoid=fit_sigmoid(find_leads(specialists)))
    SHIPPED.write_bytes(learned.pack())
    sys.stdout.write(f"{SHIPPED}: {SHIPPED.stat().st_size:,} bytes, sigmoid {learned.sigmoid}\n")
    return 0


def find_leads(specialists: Sequence[AnySpecialist]) -> list[tuple[float, bool]]:
    """Return the lead of the best specialist for each text, and whether the text needs a specialist.

    The weights are fitted without the text. A text whose best specialist is not its own is left out: many examples are
    at the border between two specialists, and the lead is only over "none".
    """
    labelled, none = label_texts(specialists), len(specialists)
    counted = [count_features(text) for text, _ in labelled]
    order = random.Random(0).sample(range(len(labelled)), len(labelled))
    leads = []
    for fold in range(FOLDS):
        left_out = order[fold::FOLDS]
        others = sorted(set(order).difference(left_out))
        vocabulary = Vocabulary()
        vocabulary.learn([counted[n] for n in others])
        vectors = [vocabulary.vector(counted[n]) for n in others]
        labels = [labelled[n][1] for n in others]
        weights = fit(vectors, labels, len(vocabulary.numbers), range(none + 1), none + 1)
        for n in left_out:
            *scores, of_none = weights.score(vocabulary.vector(counted[n]))
            best = max(range(none), key=scores.__getitem__)
            if labelled[n][1] in (best, none):
                leads.append((scores[best] - of_none, labelled[n][1] != none))
    return leads


def fit_sigmoid(leads: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    """Return the offset and the slope of the logistic regression of the second values on the first (Platt 1999)."""
    offset, slope = 0.0, 1.0
    for _ in range(ROUNDS):
        by_offset = by_slope = squared = mixed = constant = 0.0
        for lead, is_needed in leads:
            probability = 1 / (1 + math.exp(offset - slope * lead))
            error, weight = is_needed - probability, probability * (1 - probability)
            by_offset -= error
            by_slope += error * lead
            constant += weight
            mixed -= weight * lead
            squared += weight * lead * lead
        determinant = constant * squared - mixed * mixed
        offset += (squared * by_offset - mixed * by_slope) / determinant
        slope += (constant * by_slope - mixed * by_offset) / determinant
    return offset, slope


if __name__ == "__main__":
    sys.exit(main())

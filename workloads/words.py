"""Text of an exact number of tokens, for endpoints that take text only.

Short everyday words with a blank before them are one token each in the byte-pair vocabularies in use, and
never merge with their neighbours. A plan made with this vocabulary (`WordSpeller.vocabulary`) spells its
prompts in ranks of words; joined, n ranks are a text of n tokens. Where the endpoint's tokenizer is at
hand, the words that do not keep the rule are left out, and every text can be counted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workloads.errors import TraceError
from workloads.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

WORDS: Final = tuple(
    """
    the of and to in is that for it as was with be by on not he his but at are this have from or had an
    they which one you were all her she there would their we him been has when who will no more if out
    so up said what its about than into them can only other time new some could these two may first then
    do any like my now over such our man me even most made after also did many off before must well back
    through years where much your way down should because long each just state those people too good
    world own work men here get both life being under day same another know year while last might us
    great old come since against go came right used take three states few house use place during home
    high put again small large part set found still between never hand number case group course side
    area money fact water room mind land south north east west light night point city school church
    power week end open line name best body book turn form word story door face love air order early
    white full family company office public social local human table music street paper blue green red
    black gold stone river road hill fire rain snow wind bird fish horse tree leaf bread milk salt fruit
    wine glass cup knife chair bed floor wall roof garden field farm town market bridge ship boat train
    car wheel engine clock bell key lock box bag coat hat shoe shirt ring king queen lord judge doctor
    nurse teacher student friend mother father sister brother son child baby girl boy woman husband wife
    hour minute month spring summer winter morning evening today
    """.split()  # noqa: SIM905 - three hundred quoted words in a column help nobody
)
_PROBES: Final = 8  # repetitions by which a word's cost is told from its neighbours'


class WordSpeller:
    """Texts of known length out of words that cost one token each.

    count  the endpoint's own count of a text's tokens; words it does not count as one are left out
    """

    def __init__(self, words: Iterable[str] = WORDS, count: Callable[[str], int] | None = None) -> None:
        known = list(dict.fromkeys(words))
        if count is not None:
            bare = count(" the")
            known = [w for w in known if count(" the" + f" {w} the" * _PROBES) - bare == 2 * _PROBES]
        if len(known) < 2:
            raise TraceError(
                "fewer than two words cost one token each: this tokenizer needs words of its own"
            )
        self.words: Final = tuple(known)
        self._count = count

    @property
    def vocabulary(self) -> Vocabulary:
        """Ranks of the words, for `make_plan`."""
        return Vocabulary(first_normal_id=0, vocab_size=len(self.words))

    def text(self, ranks: NDArray[np.uint32]) -> str:
        """The text of these words: as many tokens as ranks, checked where the count is known."""
        words = self.words
        text = "".join([f" {words[rank]}" for rank in ranks.tolist()])
        if self._count is not None:
            counted = self._count(text)
            if counted != len(ranks):
                raise TraceError(
                    f"a text of {len(ranks)} words counts {counted} tokens in the endpoint's tokenizer"
                )
        return text

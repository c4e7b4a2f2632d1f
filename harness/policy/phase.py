"""Theory of operation: the life of a request as one transition table.

A request has up to three *legs*: prefill (P), relay (RLD) and main (MD). A leg is one open sequence
on one worker; it has *landed* when it holds the KV of the whole context but the last token, which
is always computed where decoding starts. At most one leg owns the stream, so a token index comes
from one worker only:

    LOADING      nobody owns the stream; some leg has yet to land. The client may already have tokens
                 (after a death): whoever lands goes on from there.
    RELAYING     RLD owns the stream, MD's copy is on the wire.
    CATCHING_UP  RLD owns the stream, MD holds the prompt and recomputes ids batch by batch.
    SWITCHING    RLD has stopped, MD has yet to make its first token: the felt stall.
    STREAMING    MD (or the one worker of `colocated` and `append`) owns the stream.
    LOCAL        RLD owns the stream and will end it.
    SETTLING     the client has its end; MD's cache is brought level, work ends, sequences close.
    SETTLED      nothing is owned.

The table says which triggers are legal in which phase and where they may lead; `lifecycle.py` has
one method per trigger. A trigger outside the table raises and changes nothing. Messages about work
that has ended never become triggers, so lateness needs no rows here.

A leg that is lost (its worker died, its work failed) is opened again elsewhere, at most
`max_retries` times a request. p0 is told by the receiver at each opening, so an eviction, a cache
gap or a half-done transfer only makes the next transfer longer, never the tokens wrong.
"""

from __future__ import annotations

import enum
from typing import Final


class Phase(enum.StrEnum):
    LOADING = "loading"
    RELAYING = "relaying"
    CATCHING_UP = "catching_up"
    SWITCHING = "switching"
    STREAMING = "streaming"
    LOCAL = "local"
    SETTLING = "settling"
    SETTLED = "settled"


class Trigger(enum.StrEnum):
    """An event seen from the request: what happened to which leg."""

    PREFILLED = "prefilled"
    RELAY_OPENED = "relay_opened"
    MAIN_OPENED = "main_opened"
    RELAY_LANDED = "relay_landed"
    MAIN_LANDED = "main_landed"
    RELAY_TOKENS = "relay_tokens"
    MAIN_TOKENS = "main_tokens"
    MAIN_EXTENDED = "main_extended"
    HANDOFF_LANDED = "handoff_landed"
    PREFILL_LOST = "prefill_lost"
    RELAY_LOST = "relay_lost"
    MAIN_LOST = "main_lost"
    CLIENT_GONE = "client_gone"
    DEADLINE = "deadline"


_P, _T = Phase, Trigger

TRANSITIONS: Final[dict[Phase, dict[Trigger, tuple[Phase, ...]]]] = {
    Phase.LOADING: {
        _T.PREFILLED: (_P.LOADING,),
        _T.RELAY_OPENED: (_P.LOADING, _P.RELAYING, _P.LOCAL),
        _T.MAIN_OPENED: (_P.LOADING, _P.STREAMING),
        _T.RELAY_LANDED: (_P.RELAYING, _P.LOCAL),
        _T.MAIN_LANDED: (_P.STREAMING,),
        _T.PREFILL_LOST: (_P.LOADING, _P.SETTLING),
        _T.RELAY_LOST: (_P.LOADING, _P.STREAMING, _P.SETTLING),
        _T.MAIN_LOST: (_P.LOADING, _P.SETTLING),
        _T.CLIENT_GONE: (_P.SETTLING,),
        _T.DEADLINE: (_P.SETTLING,),
    },
    Phase.RELAYING: {
        _T.PREFILLED: (_P.RELAYING,),
        _T.MAIN_OPENED: (_P.RELAYING, _P.CATCHING_UP, _P.SWITCHING),
        _T.MAIN_LANDED: (_P.CATCHING_UP, _P.SWITCHING),
        _T.RELAY_TOKENS: (_P.RELAYING, _P.SETTLING),
        _T.PREFILL_LOST: (_P.RELAYING, _P.LOCAL),
        _T.RELAY_LOST: (_P.LOADING, _P.STREAMING, _P.SETTLING),
        _T.MAIN_LOST: (_P.RELAYING, _P.LOCAL),
        _T.CLIENT_GONE: (_P.SETTLING,),
        _T.DEADLINE: (_P.SETTLING,),
    },
    Phase.CATCHING_UP: {
        _T.RELAY_TOKENS: (_P.CATCHING_UP, _P.SETTLING),
        _T.MAIN_EXTENDED: (_P.CATCHING_UP, _P.SWITCHING),
        _T.RELAY_LOST: (_P.SWITCHING,),
        _T.MAIN_LOST: (_P.RELAYING, _P.LOCAL),
        _T.CLIENT_GONE: (_P.SETTLING,),
        _T.DEADLINE: (_P.SETTLING,),
    },
    Phase.SWITCHING: {
        _T.HANDOFF_LANDED: (_P.SWITCHING,),
        _T.MAIN_TOKENS: (_P.STREAMING, _P.SETTLING),
        _T.RELAY_LOST: (_P.SWITCHING,),
        _T.MAIN_LOST: (_P.LOADING, _P.STREAMING, _P.SETTLING),
        _T.CLIENT_GONE: (_P.SETTLING,),
        _T.DEADLINE: (_P.SETTLING,),
    },
    Phase.STREAMING: {
        _T.MAIN_OPENED: (_P.STREAMING,),
        _T.MAIN_TOKENS: (_P.STREAMING, _P.SETTLING),
        _T.MAIN_LOST: (_P.LOADING, _P.STREAMING, _P.SETTLING),
        _T.CLIENT_GONE: (_P.SETTLING,),
        _T.DEADLINE: (_P.SETTLING,),
    },
    Phase.LOCAL: {
        _T.PREFILLED: (_P.LOCAL,),
        _T.RELAY_TOKENS: (_P.LOCAL, _P.SETTLING),
        _T.PREFILL_LOST: (_P.LOCAL,),
        _T.RELAY_LOST: (_P.LOADING, _P.STREAMING, _P.SETTLING),
        _T.CLIENT_GONE: (_P.SETTLING,),
        _T.DEADLINE: (_P.SETTLING,),
    },
    Phase.SETTLING: {
        _T.PREFILLED: (_P.SETTLING,),
        _T.MAIN_OPENED: (_P.SETTLING,),
        _T.MAIN_LANDED: (_P.SETTLING,),
        _T.MAIN_EXTENDED: (_P.SETTLING,),
        _T.PREFILL_LOST: (_P.SETTLING,),
        _T.MAIN_LOST: (_P.SETTLING,),
        _T.DEADLINE: (_P.SETTLING, _P.SETTLED),
    },
    Phase.SETTLED: {},
}
"""Legal triggers of each phase, and the phases each may lead to."""


class IllegalEventError(Exception):
    """An event that the table does not allow; nothing was changed."""

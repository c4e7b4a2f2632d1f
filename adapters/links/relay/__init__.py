"""The relay driver: an unprivileged TCP relay that models a line. Its results are labelled modelled.

One process (`python -m adapters.links.relay`), plain asyncio (uvloop's timers have a grain of 1 ms). Each
routed endpoint of B gets a listener; all connections of a direction share one line:

    socket → Flow.queue → Line (fair by deficit round robin, rate) → Flow.wire (delay, jitter) → socket

What a flow holds is bounded by a window of about twice rate x round trip, which grows as in TCP's slow start
and is credited one round trip after the bytes left: no long queue hides here, and a sender that gives up
saves the bytes it has not sent.
"""

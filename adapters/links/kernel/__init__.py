"""The netem and uml drivers: real TCP over real qdiscs, in namespaces of their own.

    namespace A ──── middle ──── namespace B        each end: lo, and `wan` with 198.18.0.1 or .2

The agent (`python -m adapters.links.kernel netem|uml`) makes both namespaces, anonymous, so that they go with
its processes. The middle forwards between two ports and shapes what leaves each: on the sending host a loss
would be told to its TCP and undone. It is a bridge in a third namespace (netem), or the kernel of a
user-mode-linux guest on two taps (uml); both run the same `shaper`.
"""

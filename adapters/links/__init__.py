"""Links between the clusters: real netem in this kernel or a guest's, or a portable relay. docs/wan.md."""

from adapters.links.opening import DRIVERS, open_link
from adapters.links.profiles import PROFILES, named

__all__ = ["DRIVERS", "PROFILES", "named", "open_link"]

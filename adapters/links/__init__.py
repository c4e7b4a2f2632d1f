"""Links between the clusters: real netem in this kernel or a guest's, or a portable relay. docs/wan.md."""

from adapters.links.judgement import judge_link
from adapters.links.opening import DRIVERS, check, open_link
from adapters.links.probing import Finding, probe
from adapters.links.profiles import PROFILES, named

__all__ = ["DRIVERS", "PROFILES", "Finding", "check", "judge_link", "named", "open_link", "probe"]

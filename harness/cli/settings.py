"""Overrides of an experiment file from the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import click


def overrides_of(settings: tuple[str, ...], named: Mapping[str, object]) -> dict[str, Any]:
    """`--set KEY=VALUE` and options of their own (dotted key → value or None) as one nested table."""
    from harness.experiment.config import merge

    overrides: dict[str, Any] = {}
    for setting in settings:
        overrides = merge(overrides, _setting(setting))
    for key, value in named.items():
        if value is not None:
            overrides = merge(overrides, _nested(tuple(key.split(".")), value))
    return overrides


def _setting(setting: str) -> dict[str, Any]:
    """KEY=VALUE as a nested table; VALUE is TOML, or a bare word taken as a string."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise click.UsageError(f"--set {setting}: needs KEY=VALUE, e.g. workload.token_scale=0.1")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    return _nested(tuple(key.split(".")), parsed)


def _nested(path: tuple[str, ...], value: object) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value

"""``regroup rules``."""

from __future__ import annotations

import click

from coordinator_core.cli.options import Format, format_option, write_json, write_line
from coordinator_core.reports.findings import rule_object, rule_text, rules_text
from coordinator_core.rules.catalogue import RULES, rule_of


@click.command("rules")
@click.argument("codes", nargs=-1, metavar="[CODE…]")
@format_option(Format.TEXT, Format.JSON)
def rules_command(codes: tuple[str, ...], output_format: Format) -> None:
    """The catalogue of reconciliation rules, or everything about the rules named (R31, D10 or a name)."""
    rules = [rule_of(code) for code in codes] if codes else list(RULES.values())
    if output_format is Format.JSON:
        write_json([rule_object(rule) for rule in rules])
    elif codes:
        write_line("\n\n".join(rule_text(rule) for rule in rules))
    else:
        write_line(rules_text(rules))

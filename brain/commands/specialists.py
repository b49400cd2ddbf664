"""Roof: `brain specialists`: which there are."""

import argparse
import json

from brain import own_settings
from brain.process import DONE
from brain.prompts import shape
from brain.registry import Registry
from brain.settings import PREFIX, Settings


def specialists(given: argparse.Namespace, settings: Settings) -> int:
    """Lists what is registered, what is unavailable and why, and what was refused."""
    registry = Registry(settings).discover()
    if given.json:
        found = {
            "specialists": [entry.described() for entry in registry.values()],
            "refused": [{"name": r.name, "origin": r.origin, "reason": r.reason} for r in registry.refused],
        }
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return DONE
    for entry in registry.values():
        one = entry.specialist
        print(f"{one.name} ({entry.origin}): {one.description}")
        print(f"  parameters: {shape(one.parameters)}")
        auth = "signed-in users" if one.requires_user else "everybody"
        words = "may hold strangers' words" if one.outside else "none but its own or the user's words"
        print(f"  auth: {auth}; approval: {entry.approval}; results: {words}")
        for setting in own_settings.declared(one):
            print(f"  setting {PREFIX}{setting.key} ({setting.default}): {setting.meaning}")
        if entry.missing:
            print(f"  unavailable: {entry.missing}")
    for refusal in registry.refused:
        print(f"refused: {refusal.name} ({refusal.origin}): {refusal.reason}")
    return DONE

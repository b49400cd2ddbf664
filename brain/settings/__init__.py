"""The settings of the operator, as one frozen object: fields, parsers and loading."""

from brain.settings.fields import (
    KEYS,
    LOCAL_USER,
    LOOPBACK,
    PREFIX,
    SPECIALIST_PREFIX,
    Rights,
    Settings,
    ShowResults,
    environ_name,
    table,
)
from brain.settings.loading import machine_time_zone, read
from brain.settings.models import OLLAMA_URL, OPENAI_URL, ModelRow
from brain.settings.parsers import ALL_ADDRESSES, SHARED_STORE, passwords, redact_passwords, redact_url

__all__ = [
    "ALL_ADDRESSES",
    "KEYS",
    "LOCAL_USER",
    "LOOPBACK",
    "OLLAMA_URL",
    "OPENAI_URL",
    "PREFIX",
    "SHARED_STORE",
    "SPECIALIST_PREFIX",
    "ModelRow",
    "Rights",
    "Settings",
    "ShowResults",
    "environ_name",
    "machine_time_zone",
    "passwords",
    "read",
    "redact_passwords",
    "redact_url",
    "table",
]

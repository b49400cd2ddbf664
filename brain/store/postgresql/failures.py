"""Explains why a database cannot be opened: what is wrong, and the remedy, for operators."""

import re

from brain.errors import StoreError

_WHERE = re.compile(r"connection (?:failed|is bad): (?:connection to server .*? failed: )?(?:FATAL: +|fe_sendauth: )?")
"""What libpq writes before the reason."""
_REMEDIES = (
    ("password|authentication failed", "set the password of the user in STORE, PGPASSWORD or ~/.pgpass"),
    (r"pg_hba\.conf", "allow this user and address in pg_hba.conf of the server"),
    ("database .* does not exist", "create it with createdb, or correct its name in STORE"),
    ("role .* does not exist", "create it with createuser, or correct the user in STORE"),
    ("resolve host|translate host name", "correct the host in STORE"),
    ("refused|No such file", "start the server, or correct host and port in STORE"),
    ("timeout|timed out|unreachable|No route", "check the host, the port and the firewall"),
    ("too many|connection slots", "stop other clients, or raise the limit of connections on the server"),
    ("SSL|certificate", "correct sslmode and sslrootcert in STORE, or the certificate of the server"),
    ("invalid integer", "correct it in STORE"),
    ("starting up|shutting down|recovery", "wait until the server is ready"),
)
"""By words of the reason. libpq has no codes for failed connections."""
_CODES = {
    "42501": "the user may not create or use the tables of Brain; use the owner of the database in STORE",
    "3F000": "the user has no schema in which it may create tables; use the owner of the database in STORE",
    "25006": "it is read-only; use the primary server",
    "42P07": "it has tables of another program; use an empty database",
    "42710": "it has tables of another program; use an empty database",
}


def explain(error: StoreError) -> str:
    """Return what is wrong and what to do, as the end of a sentence that begins with the place of the database."""
    code = error.detail.rpartition(" ")[2]
    if code in _CODES:
        return f"{_CODES[code]}."
    reason = _WHERE.sub("", error.detail, count=1)
    remedy = next((remedy for words, remedy in _REMEDIES if re.search(words, reason)), None)
    return f"{error}" if remedy is None else f"{reason.rstrip('.')}; {remedy}."


def explain_url(error: Exception) -> str:
    """Return what is wrong with a URL, without parts of it, any of which may be of the password."""
    if "extra key" in str(error):
        return "write = in the value of a parameter as %3D"
    if "query parameter" in str(error):
        return "libpq does not know a parameter after the question mark"
    return "write special characters of user and password as in %40 for @"

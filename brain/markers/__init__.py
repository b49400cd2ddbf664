"""Call syntaxes: find calls in a model's text, and neutralize untrusted text that looks like a call."""

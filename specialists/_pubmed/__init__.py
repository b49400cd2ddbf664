"""Modules of the specialist `pubmed`.

- Requests: `query` and `dates` parse parameters, `eutils` sends requests to NCBI, `rate_limit` delays them.
- Responses: `records` parses the XML, `articles` reads articles from it, `text` formats them for a model.
"""

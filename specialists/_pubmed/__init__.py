"""Modules of the specialist `pubmed`.

- Requests: `query` and `dates` parse parameters, `eutils` sends requests to NCBI, `rate_limit` holds them back.
- Answers: `records` parses the XML, `articles` reads articles from it, `text` writes them for a model.
"""

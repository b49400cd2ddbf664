"""The parts of `pubmed`: what is asked, how often, of whom, and articles as text."""

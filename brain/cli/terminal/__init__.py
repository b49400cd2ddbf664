"""A turn as a person sees it in a terminal: as plain text, or live; and how the person is asked."""

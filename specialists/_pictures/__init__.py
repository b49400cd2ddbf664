"""Open, read and inspect images and PDFs in child processes."""

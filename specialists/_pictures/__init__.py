"""Pictures and PDFs: opened, read and looked at in a process of their own."""

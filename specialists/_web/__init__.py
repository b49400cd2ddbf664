"""The rooms of `web`: searching, reading, and the programs that do what is risky in a process apart."""

"""The specialists that come with Brain. They use its public names only, and never each other."""
